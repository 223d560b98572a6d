/* Text for a terminal: see text.h. */
#include "fsck/text.h"

#include "engine/base/check.h"

#include <stdio.h>

void text_name(char out[TEXT_NAME_BYTES], const uint8_t *name, size_t len)
{
	char *p = out;

	check(len <= NAME_BYTES_MAX);
	*p++ = '"';
	for (size_t i = 0; i < len; i++) {
		uint8_t c = name[i];

		if (c < 32 || c == 127 || c == '"' || c == '\\')
			p += snprintf(p, 5, "\\%03o", c);
		else
			*p++ = (char)c;
	}
	*p++ = '"';
	*p = '\0';
}

void text_hex(char *out, const uint8_t *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*out++ = digits[bytes[i] >> 4];
		*out++ = digits[bytes[i] & 15];
	}
	*out = '\0';
}
