package orascript

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Name is the name of a schema, table or column as the data dictionary has it.
type Name string

var (
	plainName  = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_$#]*$`)
	quotedName = regexp.MustCompile(`^"[^"'\x00-\x1f\x7f]+"$`)
)

// maxName is the longest name in bytes, from Oracle 12.2 on.
const maxName = 128

// ParseName reads a name as SQL does: in upper case, unless it is in double
// quotes.
func ParseName(text string) (Name, error) {
	name := Name(strings.ToUpper(text))
	if !plainName.MatchString(text) {
		if !quotedName.MatchString(text) {
			return "", fmt.Errorf("%q is no name in Oracle: a letter, then letters, digits, _, $ or #; or anything else in double quotes", text)
		}
		name = Name(text[1 : len(text)-1])
	}
	if len(name) > maxName {
		return "", fmt.Errorf("%q is longer than the %d bytes of a name in Oracle", text, maxName)
	}
	return name, nil
}

// Quoted returns the name as SQL has it, in double quotes.
func (n Name) Quoted() string { return `"` + string(n) + `"` }

// Literal returns the name as a string literal; NULL: there is none.
func (n Name) Literal() string {
	if n == "" {
		return "NULL"
	}
	return literal(string(n))
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// values are what may be given to a column of an inserted row: they are written
// into the package as they are.
var values = regexp.MustCompile(`(?i)^(-?[0-9]{1,38}(\.[0-9]{1,38})?` +
	`|NULL|USER|SYSDATE|SYSTIMESTAMP` +
	`|((DATE|TIMESTAMP) ?)?'([^'\x00-\x1f\x7f]|'')*')$`)

// checkValue refuses what is not one constant.
func checkValue(text string) error {
	if !values.MatchString(text) {
		return errors.New("the value is no constant: write a number, 'text', DATE '2026-01-31', NULL, USER, SYSDATE or SYSTIMESTAMP")
	}
	return nil
}
