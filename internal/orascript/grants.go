package orascript

import (
	"io/fs"
	"regexp"
	"strings"
)

// grantees are the names that the file of grants has: of the owner and of the user.
var grantees = regexp.MustCompile(`\bLOBSINK(_APP)?\b`)

// Grants returns what a DBA grants to the owner of the tables and to the user that
// lobsink runs as. With Options.Attach that includes the other table. Where owner
// and user are one, nothing is granted from one to the other.
func Grants(files fs.FS, o Options, user Name) (Script, error) {
	r, err := newRenderer(files, &o)
	if err != nil {
		return Script{}, err
	}
	data, err := fs.ReadFile(files, "grants.sql")
	if err != nil {
		return Script{}, err
	}
	text := strings.ReplaceAll(string(data), Prefix, r.o.Prefix)
	if user == o.Owner {
		text = withoutOwnObjects(text)
	}
	text = grantees.ReplaceAllStringFunc(text, func(name string) string {
		if name == "LOBSINK" {
			return o.Owner.Quoted()
		}
		return user.Quoted()
	})
	if a := o.Attach; a != nil {
		text += "\n-- The table that documents are attached to. With grant option: the view shows its text\n-- to others.\n" +
			"GRANT SELECT ON " + a.QualifiedTable() + " TO " + o.Owner.Quoted() + " WITH GRANT OPTION\n/\n" +
			"GRANT UPDATE ON " + a.QualifiedTable() + " TO " + o.Owner.Quoted() + "\n/\n"
		if a.InsertsRows {
			text += "GRANT INSERT ON " + a.QualifiedTable() + " TO " + o.Owner.Quoted() + "\n/\n"
		}
	}
	return Script{Name: "grants.sql", Text: text}, nil
}

// withoutOwnObjects leaves out the grants on objects of the owner.
func withoutOwnObjects(text string) string {
	var kept []string
	for _, part := range strings.SplitAfter(text, "\n/\n") {
		if !strings.Contains(part, " ON LOBSINK.") {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, "")
}
