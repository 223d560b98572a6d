/*
 * Sizes for people.  No locale, no floating point: the same text everywhere.
 */
#include "engine/base/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char suffixes[] = "KMGTPE";

/* Digits at *text; stops at 2^64. */
static int digits_parse(const char **text, uint64_t *value)
{
	*value = 0;
	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	for (; isdigit((unsigned char)**text); ++*text)
		if (__builtin_mul_overflow(*value, 10, value) ||
		    __builtin_add_overflow(*value, (unsigned)(**text - '0'), value))
			return -ERANGE;
	return 0;
}

/* ".5" at *text, as a fraction of 1000. */
static int fraction_parse(const char **text, unsigned *thousandths)
{
	*thousandths = 0;
	if (**text != '.')
		return 0;
	++*text;
	if (!isdigit((unsigned char)**text))
		return -EINVAL;
	for (unsigned weight = 100; isdigit((unsigned char)**text); ++*text, weight /= 10)
		*thousandths += weight * (unsigned)(**text - '0');
	return 0;
}

static int unit_parse(const char *text, unsigned *shift)
{
	const char *suffix = *text ? strchr(suffixes, toupper((unsigned char)*text)) : NULL;

	*shift = 0;
	if (suffix) {
		*shift = 10 * (unsigned)(suffix - suffixes + 1);
		text++;
		if (strcasecmp(text, "iB") == 0)
			return 0;
	}
	return *text == '\0' || strcasecmp(text, "B") == 0 ? 0 : -EINVAL;
}

int size_parse(const char *text, uint64_t *bytes)
{
	uint64_t whole;
	unsigned thousandths = 0, shift = 0;
	uint64_t part;
	int rc = digits_parse(&text, &whole);

	if (!rc)
		rc = fraction_parse(&text, &thousandths);
	if (!rc)
		rc = unit_parse(text, &shift);
	if (!rc && thousandths && !shift)
		rc = -EINVAL; /* half a byte */
	if (rc)
		return rc;
	/* The largest unit is 2^60: a product with less than 1000 / 1000 of it fits. */
	part = (1ull << shift) / 1000 * thousandths + (1ull << shift) % 1000 * thousandths / 1000;
	if (__builtin_mul_overflow(whole, 1ull << shift, bytes) ||
	    __builtin_add_overflow(*bytes, part, bytes))
		return -ERANGE;
	return 0;
}

const char *size_text(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
	unsigned unit = 0;
	uint64_t whole = bytes;
	unsigned tenths = 0;

	while (whole >= 1024 && unit < sizeof(suffixes) - 1) {
		tenths = (unsigned)(whole % 1024 * 10 / 1024);
		whole /= 1024;
		unit++;
	}
	if (unit == 0)
		snprintf(text, SIZE_TEXT_BYTES, "%u bytes", (unsigned)whole);
	else if (tenths)
		snprintf(text, SIZE_TEXT_BYTES, "%u.%u %ciB", (unsigned)whole, tenths,
			 suffixes[unit - 1]);
	else
		snprintf(text, SIZE_TEXT_BYTES, "%u %ciB", (unsigned)whole, suffixes[unit - 1]);
	return text;
}
