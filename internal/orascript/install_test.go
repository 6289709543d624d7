package orascript_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
)

// attachments are those that together use every part of the templates.
func attachments() []orascript.AttachmentText {
	return []orascript.AttachmentText{
		{Table: "app.docs", Key: "doc_id", KeyType: "VARCHAR2", Body: "xml_text", Touch: "updated_at", Insert: []string{"status='NEW'", "n = -1.5", "day = DATE '2026-01-31'"}},
		{Table: `"App"."My Docs"`, Key: `"Id"`, KeyType: "number", Body: "body", Insert: []string{""}},
		{Table: "app.docs", Key: "doc_id", KeyType: "RAW", Body: "xml_text"},
		{Table: "app.docs", Key: "doc_id", KeyType: "CHAR", Body: "xml_text"},
	}
}

func install(t *testing.T, o orascript.Options) []orascript.Script {
	t.Helper()
	scripts, err := orascript.Install(deploy.Oracle(), o)
	if err != nil {
		t.Fatal(err)
	}
	return scripts
}

func names(scripts []orascript.Script) (all []string) {
	for _, s := range scripts {
		all = append(all, s.Name)
	}
	return all
}

func joined(scripts []orascript.Script) string {
	var b strings.Builder
	for _, s := range scripts {
		b.WriteString(s.Text)
	}
	return b.String()
}

func TestInstall(t *testing.T) {
	t.Parallel()
	migrations := []string{"00001_tables.sql", "00002_lobsink_v1.sql", "00003_lobsink_v1_body.sql"}
	t.Run("by default there are the migrations and no option that needs a licence", func(t *testing.T) {
		scripts := install(t, orascript.Options{Partitions: 8})
		if !slices.Equal(names(scripts), migrations) || orascript.Newest(scripts) != 3 {
			t.Errorf("scripts %v, version %d", names(scripts), orascript.Newest(scripts))
		}
		for _, licensed := range []string{"PARTITION BY", " COMPRESS", "ENCRYPT", "DEDUPLICATE\n", "\n  COMPRESS"} {
			if strings.Contains(joined(scripts), licensed) {
				t.Errorf("the scripts have %q", licensed)
			}
		}
	})
	t.Run("the schema comes first", func(t *testing.T) {
		scripts := install(t, orascript.Options{Partitions: 8, Owner: "DOCS"})
		if got := scripts[0].Statements(); len(got) != 1 || got[0].Text != `ALTER SESSION SET CURRENT_SCHEMA = "DOCS"` {
			t.Errorf("the first statements are %v", got)
		}
	})
	t.Run("choices run before or after the tables", func(t *testing.T) {
		got := names(install(t, orascript.Options{Partitions: 2, Choices: []string{"retention-min", "compress", "in-row", "reverse-key"}}))
		want := slices.Concat(migrations, []string{"options/in_row.sql", "options/reverse_key.sql", "options/compress.sql", "options/retention_min.sql"})
		if !slices.Equal(got, want) {
			t.Errorf("scripts %v, not %v", got, want)
		}
		got = names(install(t, orascript.Options{Partitions: 2, Choices: []string{"partitioning"}}))
		if !slices.Equal(got, slices.Concat([]string{"options/partitioning.sql"}, migrations)) {
			t.Errorf("scripts %v", got)
		}
	})
	t.Run("partitioning makes one partition for each of the stream", func(t *testing.T) {
		text := joined(install(t, orascript.Options{Partitions: 3, Choices: []string{"partitioning"}}))
		if !strings.Contains(text, "PARTITION lobsink_p0 VALUES (0),\n  PARTITION lobsink_p1 VALUES (1),\n  PARTITION lobsink_p2 VALUES (2)\n)") {
			t.Error("the partitions are not those of the stream")
		}
	})
	t.Run("the columns of the partitioned table are those of the other one", func(t *testing.T) {
		scripts := install(t, orascript.Options{Partitions: 3, Choices: []string{"partitioning"}})
		if a, b := columns(scripts[0].Text), columns(scripts[1].Text); a == "" || a != b {
			t.Errorf("%s\n%s", a, b)
		}
	})
	t.Run("the text in tables of its own", func(t *testing.T) {
		text := joined(install(t, orascript.Options{Partitions: 2, Choices: []string{"body-tables"}}))
		for _, part := range []string{"CREATE TABLE lobsink_bodies_1 ", "UNION ALL\nSELECT 1 AS table_no", "INSERT INTO lobsink_bodies_1 ", "VALUES (1, 'tables', 2)"} {
			if !strings.Contains(text, part) {
				t.Errorf("there is no %q", part)
			}
		}
		if strings.Contains(text, "lobsink_bodies_2") || strings.Contains(text, "INTO p_body FROM lobsink_documents") {
			t.Error("text goes somewhere else too")
		}
	})
	t.Run("another prefix gives another set", func(t *testing.T) {
		text := joined(install(t, orascript.Options{Partitions: 2, Prefix: "other_", Choices: []string{"body-tables"}}))
		if strings.Contains(strings.ToLower(text), "lobsink_") {
			t.Error("an object has the name of the usual set")
		}
		if !strings.Contains(text, "PACKAGE BODY other_v1") || !strings.Contains(text, "name = 'OTHER_V1'") {
			t.Error("the package has another name")
		}
	})
	for name, o := range map[string]orascript.Options{
		"a choice that there is not":     {Partitions: 1, Choices: []string{"faster"}},
		"choices that exclude another":   {Partitions: 1, Choices: []string{"partitioning", "in-row"}},
		"tables of its own and attached": {Partitions: 1, Choices: []string{"body-tables"}, Attach: &orascript.Attachment{}},
		"no partitions":                  {},
		"too many partitions":            {Partitions: 5000},
		"a prefix that is no name":       {Partitions: 1, Prefix: "x y_"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if _, err := orascript.Install(deploy.Oracle(), o); err == nil {
				t.Error("it was taken")
			}
		})
	}
}

// columns returns the columns of lobsink_documents.
func columns(script string) string {
	_, rest, _ := strings.Cut(script, "CREATE TABLE lobsink_documents (\n")
	found, _, _ := strings.Cut(rest, "  CONSTRAINT")
	return found
}

func TestChoices(t *testing.T) {
	t.Parallel()
	choices, err := orascript.Choices(deploy.Oracle())
	if err != nil {
		t.Fatal(err)
	}
	licences := map[string]string{}
	for _, c := range choices {
		licences[c.Name] = c.Licence
		for _, other := range c.Excludes {
			if !slices.ContainsFunc(choices, func(c orascript.Choice) bool { return c.Name == other }) {
				t.Errorf("%s excludes %s, which there is not", c.Name, other)
			}
		}
	}
	for name, want := range map[string]string{"in-row": "none", "reverse-key": "none", "body-tables": "none", "retention-none": "none",
		"partitioning": "Oracle Partitioning", "compress": "Oracle Advanced Compression"} {
		if !strings.HasPrefix(licences[name], want) {
			t.Errorf("%s has licence %q, not %q", name, licences[name], want)
		}
	}
	_, err = orascript.Choices(fstest.MapFS{"options/new.sql": {Data: []byte("-- Storage choice: something.\n")}})
	if err == nil || !strings.Contains(err.Error(), "licence") {
		t.Errorf("a choice without a licence: %v", err)
	}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	text := func(t *testing.T, from orascript.AttachmentText) string {
		t.Helper()
		a, err := from.Parse()
		if err != nil {
			t.Fatal(err)
		}
		scripts, err := orascript.Layout(deploy.Oracle(), orascript.Options{Partitions: 1, Attach: a})
		if err != nil {
			t.Fatal(err)
		}
		if got := names(scripts); !slices.Equal(got, []string{"00003_lobsink_v1_body.sql"}) {
			t.Errorf("scripts %v", got)
		}
		return joined(scripts)
	}
	all := attachments()
	for _, c := range []struct {
		name      string
		from      orascript.AttachmentText
		has, lack []string
	}{
		{"rows are inserted with constants, and touched", all[0],
			[]string{`VALUES (l_key, EMPTY_CLOB(), 'NEW', -1.5, DATE '2026-01-31')`, `SET t."UPDATED_AT" = SYSTIMESTAMP`, `"APP"."DOCS"`, `GRANT UPDATE, INSERT ON`, "VALUES (1, 'attached', 'APP', 'DOCS'"},
			[]string{"RAISE_APPLICATION_ERROR(-20816"}},
		{"names in quotes, keys that are numbers, nothing but key and text", all[1],
			[]string{`FROM "App"."My Docs" t WHERE t."Id" = l_key`, `TO_NUMBER(p_key)`, `("Id", "BODY")`, "'My Docs'"}, []string{"SYSTIMESTAMP;", "MY DOCS"}},
		{"rows are not inserted, keys are hex", all[2], []string{"RAISE_APPLICATION_ERROR(-20816", "HEXTORAW(p_key)"}, []string{`INSERT INTO "APP"`}},
		{"keys are padded", all[3], []string{"LIKE '% '", `RTRIM(t."DOC_ID") = d.doc_key`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := text(t, c.from)
			for _, part := range c.has {
				if !strings.Contains(got, part) {
					t.Errorf("there is no %s", part)
				}
			}
			_, body, _ := strings.Cut(got, "PACKAGE BODY")
			body, _, _ = strings.Cut(body, "END lobsink_v1")
			for _, part := range append(c.lack, "EXECUTE IMMEDIATE", "INTO p_body FROM lobsink_documents WHERE ROWID = p_rid;") {
				if strings.Contains(body, part) {
					t.Errorf("there is %s", part)
				}
			}
		})
	}
	t.Run("names of the user are not those of the set", func(t *testing.T) {
		from := all[2]
		from.Table = "lobsink_app.lobsink_docs"
		a, err := from.Parse()
		if err != nil {
			t.Fatal(err)
		}
		scripts, err := orascript.Layout(deploy.Oracle(), orascript.Options{Partitions: 1, Prefix: "other_", Attach: a})
		if err != nil || !strings.Contains(joined(scripts), `FROM "LOBSINK_APP"."LOBSINK_DOCS" t`) {
			t.Errorf("%v: the table has another name", err)
		}
	})
}

func TestAttachRefused(t *testing.T) {
	t.Parallel()
	valid := attachments()[0]
	for name, spoil := range map[string]func(*orascript.AttachmentText){
		"a table without its schema":       func(a *orascript.AttachmentText) { a.Table = "docs" },
		"a name with more SQL":             func(a *orascript.AttachmentText) { a.Body = "xml_text FROM dual--" },
		"a quoted name with a quote":       func(a *orascript.AttachmentText) { a.Key = `"a"b"` },
		"a quoted name with an apostrophe": func(a *orascript.AttachmentText) { a.Key = `"a'b"` },
		"a name that is too long":          func(a *orascript.AttachmentText) { a.Key = strings.Repeat("k", 129) },
		"a name in other letters":          func(a *orascript.AttachmentText) { a.Key = "schlüssel" },
		"no key":                           func(a *orascript.AttachmentText) { a.Key = "" },
		"a type of key that is not known":  func(a *orascript.AttachmentText) { a.KeyType = "DATE" },
		"one column for key and body":      func(a *orascript.AttachmentText) { a.Body = "DOC_ID" },
		"one column for body and touch":    func(a *orascript.AttachmentText) { a.Touch = "xml_text" },
		"a value that is a call":           func(a *orascript.AttachmentText) { a.Insert = []string{"x=f(1)"} },
		"a value that is a select":         func(a *orascript.AttachmentText) { a.Insert = []string{"x=(SELECT 1 FROM dual)"} },
		"a value that leaves its quotes":   func(a *orascript.AttachmentText) { a.Insert = []string{"x='a' || 'b'"} },
		"a value with an open quote":       func(a *orascript.AttachmentText) { a.Insert = []string{"x='a''"} },
		"a value with a line feed":         func(a *orascript.AttachmentText) { a.Insert = []string{"x='a\n/\n'"} },
		"a value for the key":              func(a *orascript.AttachmentText) { a.Insert = []string{"doc_id='1'"} },
		"a column with two values":         func(a *orascript.AttachmentText) { a.Insert = []string{"x=1", "X=2"} },
		"no value":                         func(a *orascript.AttachmentText) { a.Insert = []string{"x"} },
	} {
		t.Run(name, func(t *testing.T) {
			a := valid
			spoil(&a)
			if _, err := a.Parse(); err == nil {
				t.Errorf("%+v was taken", a)
			}
		})
	}
}

func TestGrants(t *testing.T) {
	t.Parallel()
	grants := func(owner, user orascript.Name) string {
		s, err := orascript.Grants(deploy.Oracle(), orascript.Options{Partitions: 1, Owner: owner}, user)
		if err != nil {
			t.Fatal(err)
		}
		return s.Text
	}
	t.Run("the user reads and executes, and nothing else", func(t *testing.T) {
		text := grants("O", "LOBSINK")
		for _, statement := range (orascript.Script{Text: text}).Statements() {
			if !strings.HasSuffix(statement.Text, ` TO "LOBSINK"`) {
				continue
			}
			if !strings.HasPrefix(statement.Text, "GRANT CREATE SESSION ") && !strings.HasPrefix(statement.Text, `GRANT READ ON "O".`) && statement.Text != `GRANT EXECUTE ON "O".lobsink_v1 TO "LOBSINK"` {
				t.Errorf("%s", statement.Text)
			}
		}
		if !strings.Contains(text, `GRANT EXECUTE ON SYS.DBMS_LOB TO "O"`) {
			t.Error("the owner gets nothing")
		}
	})
	t.Run("who owns the tables needs no right on them", func(t *testing.T) {
		if text := grants("O", "O"); strings.Contains(text, `ON "O".`) || !strings.Contains(text, "CREATE SESSION") {
			t.Error(text)
		}
	})
	t.Run("nothing is granted that a review would stop at", func(t *testing.T) {
		for _, statement := range (orascript.Script{Text: grants("O", "U")}).Statements() {
			for _, word := range []string{" ANY ", "UNLIMITED", "PUBLIC", "DBA", "SELECT"} {
				if strings.Contains(statement.Text, word) {
					t.Errorf("%s", statement.Text)
				}
			}
		}
	})
}
