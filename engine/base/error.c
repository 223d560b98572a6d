/*
 * Names, public errno and text of every error code, generated from error.def.
 */
#include "engine/base/error.h"

#include "engine/base/check.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static const struct {
	int number;
	const char *text;
} codes[] = {
#define X(name, number, text) [name - BE_FIRST] = {number, text},
#include "engine/base/error.def"
#undef X
};

static bool is_private(int code)
{
	return -code > BE_FIRST && -code < BE_LAST;
}

int error_errno(int code)
{
	check(code <= 0 && (code > -BE_FIRST || is_private(code)));
	return is_private(code) ? -codes[-code - BE_FIRST].number : code;
}

const char *error_text(int code)
{
	const char *text;

	if (is_private(code))
		return codes[-code - BE_FIRST].text;
	text = code <= 0 && code > -BE_FIRST ? strerrordesc_np(-code) : NULL;
	return text ? text : "unknown error";
}
