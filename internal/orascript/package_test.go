package orascript_test

import (
	"regexp"
	"strings"
	"testing"
)

// never is what others have come to grief with, unless certain text follows.
var never = []struct{ name, pattern, unless string }{
	{"O1: LENGTH as the amount of a LOB write loses text after an emoji", `\bLENGTHC?\(`, `p_data`},
	{"O7: DBMS_LOB.SUBSTR gives at most 8,191 characters", `DBMS_LOB\.SUBSTR`, ""},
	{"O8, O9: MERGE takes no long text", `\bMERGE\b`, ""},
	{"O15: a temporary LOB lives as long as its session", `CREATETEMPORARY|TO_CLOB`, ""},
	{"the report: DBMS_LOB.APPEND is four times as dear", `DBMS_LOB\.APPEND\b`, ""},
	{"the report: text || text writes everything again", `body \|\|`, ""},
	{"the report: OPEN and CLOSE do not help", `DBMS_LOB\.(OPEN|CLOSE)\b`, ""},
	{"SQL that is put together at run time", `EXECUTE IMMEDIATE|DBMS_SQL`, ""},
	{"a commit: it goes with the call", `\bCOMMIT\b|AUTONOMOUS_TRANSACTION`, ""},
	{"a wait without an end", `FOR UPDATE`, ` WAIT 5| SKIP LOCKED`},
	{"a clock with the time zone of a host", `\bSYSDATE\b|LOCALTIMESTAMP|CURRENT_TIMESTAMP`, ""},
	{"a conversion that replaces what it does not know", `\bCONVERT\(|RAW_TO_CHAR`, ""},
	{"an error that is forgotten", `WHEN OTHERS THEN\s+NULL`, ""},
	{"a length that depends on who installs", `VARCHAR2\(\d+\)`, ""},
}

// TestPackageNever: none of it is in the package, in any layout.
func TestPackageNever(t *testing.T) {
	t.Parallel()
	for layout, scripts := range layouts(t) {
		_, body, _ := strings.Cut(joined(scripts), "CREATE OR REPLACE PACKAGE BODY")
		body, _, _ = strings.Cut(body, "END lobsink_v1;")
		body = lineComment.ReplaceAllString(body, "")
		for _, n := range never {
			for _, at := range regexp.MustCompile(n.pattern).FindAllStringIndex(body, -1) {
				if n.unless == "" || !regexp.MustCompile(`^(`+n.unless+`)`).MatchString(body[at[1]:]) {
					t.Errorf("%s: %q (%s)", layout, body[at[0]:at[1]+20], n.name)
				}
			}
		}
	}
}
