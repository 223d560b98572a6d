# Names the places of a C file that no test has run: one line each,
#
#	file:line TAB kind TAB function TAB what stands there
#
#   awk -v file=F -v lines='12 13 40 ...' -f uncovered.awk F
#
# Functions begin in the first column, with their brace alone on a line.  A kind is what
# the lines, and those just before them, speak of; README.md explains them.
function kind_of(text) {
	if (text ~ /ENOMEM|alloc\(|no memory/)
		return "memory"
	if (text ~ /corrupt|BE_(DAMAGE|FORMAT|IDENTITY|CRC|FUTURE|VERSION)|damaged\(|problem|refuse\(/)
		return "damage"
	if (text ~ /errno|-E[A-Z]+|BE_[A-Z]+/)
		return "refusal"
	if (text ~ /AGAIN|retry|restart|race|meanwhile|cancel/)
		return "race"
	if (text ~ /rc|err|error|goto out|return -/)
		return "passed on"
	return "other"
}

function flush_place() {
	if (first)
		printf "%s:%d\t%s\t%s\t%s\n", file, first, kind_of(context), place, shown
	first = 0
}

BEGIN {
	count = split(lines, list, " ")
	for (i = 1; i <= count; i++)
		missed[list[i]] = 1
}

/^[a-z].*\(/ && !/;$/ {
	name = $0
	sub(/\(.*/, "", name)
	sub(/.*[ *]/, "", name)
	if (FNR in missed) { # the function as a whole
		flush_place()
		function_name = name
	}
}
/^\{/ { function_name = name }

{
	if (FNR in missed) {
		if (!first) {
			first = FNR
			place = function_name
			shown = $0
			gsub(/^[ \t]+|[ \t]+$/, "", shown)
			context = before[2] before[1]
		}
		context = context $0
	} else if (first && $0 !~ /^[ \t]*([{}]|$|[^;]*\*\/$)/) {
		flush_place()
	}
	before[2] = before[1]
	before[1] = $0
}

END { flush_place() }
