package orascript_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/internal/orascript"
)

// TestNames looks in the package, in every layout, for what a compiler would refuse
// and a grammar does not: names that are not declared, calls with another number of
// arguments, columns that are not there or left out, records that do not fit. It
// knows how the package is written, not PL/SQL.
func TestNames(t *testing.T) {
	t.Parallel()
	for name, scripts := range layouts(t) {
		t.Run(name, func(t *testing.T) {
			p := newProgram(joined(scripts))
			if len(p.units) < 35 || len(p.tables) < 8 {
				t.Fatalf("%d units, %d tables", len(p.units), len(p.tables))
			}
			for _, fault := range p.faults() {
				t.Error(fault)
			}
		})
	}
}

// reserved are the words that cannot be names in SQL (Oracle Database SQL Language
// Reference, Oracle SQL Reserved Words) or in PL/SQL (PL/SQL Language Reference).
const reserved = `
ACCESS ADD ALL ALTER AND ANY AS ASC AT AUDIT BEGIN BETWEEN BY CASE CHAR CHECK CLUSTER CLUSTERS COLAUTH COLUMN COLUMNS
COLUMN_VALUE COMMENT COMPRESS CONNECT CRASH CREATE CURRENT CURSOR DATE DECIMAL DECLARE DEFAULT DELETE DESC DISTINCT DROP
ELSE END EXCEPTION EXCLUSIVE EXISTS FETCH FILE FLOAT FOR FROM FUNCTION GOTO GRANT GROUP HAVING IDENTIFIED IF IMMEDIATE IN
INCREMENT INDEX INDEXES INITIAL INSERT INTEGER INTERSECT INTO IS LEVEL LIKE LOCK LONG MAXEXTENTS MINUS MLSLABEL MODE MODIFY
NESTED_TABLE_ID NOAUDIT NOCOMPRESS NOT NOWAIT NULL NUMBER OF OFFLINE ON ONLINE OPTION OR ORDER OVERLAPS PCTFREE PRIOR
PROCEDURE PUBLIC RAW RENAME RESOURCE REVOKE ROW ROWID ROWNUM ROWS SELECT SESSION SET SHARE SIZE SMALLINT SQL START SUBTYPE
SUCCESSFUL SYNONYM SYSDATE TABAUTH TABLE THEN TO TRIGGER TYPE UID UNION UNIQUE UPDATE USER VALIDATE VALUES VARCHAR VARCHAR2
VIEW VIEWS WHEN WHENEVER WHERE WITH`

// TestNamesReserved: no table, column, procedure or field has a name that needs
// quotes, or more than the 128 bytes of a name.
func TestNamesReserved(t *testing.T) {
	t.Parallel()
	p := newProgram(joined(layouts(t)["tables"]))
	var all []string
	for table, columns := range p.tables {
		all = append(all, table)
		for _, c := range columns {
			all = append(all, c.name)
		}
	}
	for name := range p.parameters {
		all = append(all, name)
	}
	for _, fields := range p.records {
		all = append(all, fields...)
	}
	words := strings.Fields(reserved)
	for _, name := range all {
		if slices.Contains(words, strings.ToUpper(name)) || len(name) > 128 {
			t.Errorf("%s cannot be a name", name)
		}
	}
	if len(all) < 120 {
		t.Errorf("only %d names were found", len(all))
	}
}

// TestNamesFound: each kind of fault is found.
func TestNamesFound(t *testing.T) {
	t.Parallel()
	text := joined(layouts(t)["documents"])
	for _, c := range []struct{ name, from, to, want string }{
		{"a variable", "p_next := p_next + l_amount;", "p_next := p_next + l_amout;", "l_amout is not declared"},
		{"a parameter", "SET lease_until = l_now + p_lease WHERE", "SET lease_until = l_now + p_leese WHERE", "p_leese is not declared"},
		{"a field", "l_row.state <> p_state;", "l_row.status <> p_state;", "l_row has no field status"},
		{"an argument too few", "close_body(p_partition, p_key);", "close_body(p_key);", "close_body has 2 parameters, the call 1"},
		{"an argument too many", "RETURN no_row;", "RETURN no_row(1);", "no_row has 0 parameters, the call 1"},
		{"a procedure", "update_row(l_rid, p_after);", "change_row(l_rid, p_after);", "change_row is no procedure"},
		{"a private function in SQL", "updated_at = l_now\n     WHERE ROWID = p_rid", "updated_at = now_ns\n     WHERE ROWID = p_rid", "now_ns is used in SQL"},
		{"a column that is inserted", "INSERT INTO lobsink_leases (partition_no, epoch,", "INSERT INTO lobsink_leases (partition, epoch,", "lobsink_leases has no column partition"},
		{"a column that is left out", "INSERT INTO lobsink_leases (partition_no, epoch, lease_until) VALUES (n, 0, 0)", "INSERT INTO lobsink_leases (partition_no, epoch) VALUES (n, 0)", "lobsink_leases needs column lease_until"},
		{"a value too few", "VALUES (n, 1, 0, 0, 0, 0, 0, 0)", "VALUES (n, 1, 0, 0, 0, 0, 0)", "8 columns, 7 values"},
		{"a column that is selected", "SELECT state INTO l_state", "SELECT status INTO l_state", "lobsink_documents has no column status"},
		{"a record that does not fit", "first_seq, fragments, holes, late, bytes, units, chunks, crc, reason\n      INTO l_row", "first_seq, fragments, holes, late, bytes, units, chunks, crc\n      INTO l_row", "13 columns into the 14 fields of l_row"},
		{"a field of a loop's row", "l.lease_until - l_now", "l.lease_end - l_now", "l has no column lease_end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !strings.Contains(text, c.from) {
				t.Fatalf("there is no %q", c.from)
			}
			found := newProgram(strings.Replace(text, c.from, c.to, 1)).faults()
			if !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, c.want) }) {
				t.Errorf("found %q", found)
			}
		})
	}
}

// layouts returns the scripts of each layout.
func layouts(t *testing.T) map[string][]orascript.Script {
	t.Helper()
	all := map[string][]orascript.Script{
		"documents": install(t, orascript.Options{Partitions: 2}),
		"tables":    install(t, orascript.Options{Partitions: 2, Choices: []string{"body-tables"}}),
	}
	for i, text := range attachments() {
		a, err := text.Parse()
		if err != nil {
			t.Fatal(err)
		}
		scripts, err := orascript.Install(deploy.Oracle(), orascript.Options{Partitions: 2, Attach: a})
		if err != nil {
			t.Fatal(err)
		}
		all[fmt.Sprintf("attached %d", i)] = scripts
	}
	return all
}

// program is a package body and the tables that it works on.
type program struct {
	// units are the procedures and functions of the package, parameters how many
	// each has, those within others included.
	units      []unit
	parameters map[string]int
	functions  []string
	tables     map[string][]column
	records    map[string][]string
}

type unit struct{ name, text string }

type column struct {
	name   string
	needed bool // NOT NULL without a default
}

var (
	literals   = regexp.MustCompile(`'[^']*'`)
	makesTable = regexp.MustCompile(`(?s)CREATE TABLE (lobsink_\w+) \(\n(.*?)\n\)`)
	makesPart  = regexp.MustCompile(`(?s)TYPE (t_\w+) IS RECORD \((.*?)\);`)
	heads      = regexp.MustCompile(`(?s)\b(PROCEDURE|FUNCTION) (\w+)(\((?:[^()]|\(\d+\))*\))?( RETURN (?:"[^"]+"|[\w.%])+)? IS\n`)
	unitHeads  = regexp.MustCompile(`(?m)^  (PROCEDURE|FUNCTION) (\w+)`)
	calledName = regexp.MustCompile(`\b([a-z]\w*)\(`)
)

func newProgram(text string) *program {
	p := &program{parameters: map[string]int{}, tables: map[string][]column{}, records: map[string][]string{}}
	for _, m := range makesTable.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(m[2]) {
			words := strings.Fields(strings.Trim(line, " ,\n"))
			if len(words) > 1 && words[0] != "CONSTRAINT" {
				p.tables[m[1]] = append(p.tables[m[1]], column{words[0], strings.Contains(line, "NOT NULL") && !strings.Contains(line, "DEFAULT")})
			}
		}
	}
	_, body, _ := strings.Cut(text, "CREATE OR REPLACE PACKAGE BODY")
	body, _, _ = strings.Cut(body, "END lobsink_v1;")
	body = literals.ReplaceAllString(lineComment.ReplaceAllString(body, ""), "''")
	for _, m := range makesPart.FindAllStringSubmatch(body, -1) {
		for _, field := range strings.Split(m[2], ",\n") {
			p.records[m[1]] = append(p.records[m[1]], strings.Fields(field)[0])
		}
	}
	for _, m := range heads.FindAllStringSubmatch(body, -1) {
		p.parameters[m[2]] = len(arguments(m[3]))
		if m[1] == "FUNCTION" {
			p.functions = append(p.functions, m[2])
		}
	}
	places := unitHeads.FindAllStringSubmatchIndex(body, -1)
	for i, at := range places {
		end := len(body)
		if i+1 < len(places) {
			end = places[i+1][0]
		}
		p.units = append(p.units, unit{body[at[4]:at[5]], body[at[0]:end]})
	}
	return p
}

// arguments cuts the content of brackets at the commas of its own level.
func arguments(brackets string) (all []string) {
	text := strings.TrimSuffix(strings.TrimPrefix(brackets, "("), ")")
	depth, from := 0, 0
	for i, r := range text {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == ',' && depth == 0:
			all = append(all, strings.TrimSpace(text[from:i]))
			from = i + 1
		}
	}
	if strings.TrimSpace(text) != "" {
		all = append(all, strings.TrimSpace(text[from:]))
	}
	return all
}

// closed returns the text from an opening bracket to the one that closes it.
func closed(text string) string {
	depth := 0
	for i, r := range text {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return text[:i+1]
			}
		}
	}
	return text
}

func (p *program) faults() (all []string) {
	for _, u := range p.units {
		for _, fault := range slices.Concat(p.undeclared(u), p.wrongCalls(u), p.wrongSQL(u)) {
			all = append(all, u.name+": "+fault)
		}
	}
	return all
}

var (
	declaredNames = regexp.MustCompile(`(?m)(?:^ +|\(|, *)([lp]_\w+) +(?:IN OUT NOCOPY|IN OUT|OUT NOCOPY|OUT|IN)? *([A-Za-z]\w*|"[^"]+"[\w."%]*)`)
	usedNames     = regexp.MustCompile(`\b([lp]_\w+)(?:\.(\w+))?`)
	loopRows      = regexp.MustCompile(`(?s)FOR (\w+) IN \(SELECT (.*?)\n? +FROM (\w+)`)
)

// undeclared returns variables, parameters and fields that are used and not there.
func (p *program) undeclared(u unit) (faults []string) {
	types := map[string]string{}
	for _, m := range declaredNames.FindAllStringSubmatch(u.text, -1) {
		types[m[1]] = m[2]
	}
	for _, m := range usedNames.FindAllStringSubmatch(u.text, -1) {
		of, there := types[m[1]]
		fields := p.records[of]
		switch {
		case !there:
			faults = append(faults, m[1]+" is not declared")
		case m[2] != "" && fields != nil && !slices.Contains(fields, m[2]):
			faults = append(faults, m[1]+" has no field "+m[2])
		}
	}
	for _, m := range loopRows.FindAllStringSubmatch(u.text, -1) {
		columns := selected(m[2])
		for _, use := range regexp.MustCompile(`\b`+m[1]+`\.(\w+)`).FindAllStringSubmatch(u.text, -1) {
			if !slices.Contains(columns, use[1]) {
				faults = append(faults, m[1]+" has no column "+use[1])
			}
		}
	}
	return faults
}

// selected returns the names of what is selected.
func selected(list string) (names []string) {
	for _, item := range arguments("(" + strings.TrimSpace(list) + ")") {
		words := strings.Fields(item)
		name := words[len(words)-1]
		names = append(names, name[strings.LastIndexByte(name, '.')+1:])
	}
	return names
}

// wrongCalls returns calls of what there is not, or with another number of
// arguments. What is Oracle's own the package writes in capitals; elements of tables
// look like calls, their names begin with p_.
func (p *program) wrongCalls(u unit) (faults []string) {
	for _, at := range calledName.FindAllStringSubmatchIndex(u.text, -1) {
		name := u.text[at[2]:at[3]]
		before := u.text[:at[2]]
		if strings.HasPrefix(name, "p_") || strings.HasSuffix(before, "PROCEDURE ") || strings.HasSuffix(before, "FUNCTION ") || strings.HasSuffix(before, `"`) {
			continue
		}
		want, there := p.parameters[name]
		if !there {
			faults = append(faults, name+" is no procedure")
			continue
		}
		if got := len(arguments(closed(u.text[at[3]:]))); got != want {
			faults = append(faults, fmt.Sprintf("%s has %d parameters, the call %d", name, want, got))
		}
	}
	return faults
}

var (
	statements = regexp.MustCompile(`(?s)\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b.*?(;|\) LOOP)`)
	inserts    = regexp.MustCompile(`(?s)^INSERT INTO (lobsink_\w+) \((.*?)\)\s+VALUES (\(.*)`)
	updates    = regexp.MustCompile(`(?s)^UPDATE (lobsink_\w+)\s+SET (.*?)\s+WHERE`)
	selects    = regexp.MustCompile(`(?s)^SELECT (.*?)\s+(?:INTO (.*?)\s+)?FROM (lobsink_\w+)`)
	bareName   = regexp.MustCompile(`^[a-z]\w*$`)
)

// wrongSQL returns columns that are not there, are left out, or do not fit.
func (p *program) wrongSQL(u unit) (faults []string) {
	for _, sql := range statements.FindAllString(u.text, -1) {
		for _, f := range p.functions {
			if regexp.MustCompile(`\b` + f + `\b`).MatchString(sql) {
				faults = append(faults, f+" is used in SQL")
			}
		}
		if m := inserts.FindStringSubmatch(sql); m != nil {
			columns, values := arguments("("+m[2]+")"), arguments(closed(m[3]))
			if len(columns) != len(values) {
				faults = append(faults, fmt.Sprintf("%s: %d columns, %d values", m[1], len(columns), len(values)))
			}
			faults = append(faults, p.missing(m[1], columns)...)
			for _, c := range p.tables[m[1]] {
				if c.needed && !slices.Contains(columns, c.name) {
					faults = append(faults, m[1]+" needs column "+c.name)
				}
			}
		}
		if m := updates.FindStringSubmatch(sql); m != nil {
			var columns []string
			for _, part := range arguments("(" + m[2] + ")") {
				columns = append(columns, strings.Fields(part)[0])
			}
			faults = append(faults, p.missing(m[1], columns)...)
		}
		if m := selects.FindStringSubmatch(sql); m != nil {
			var columns []string
			items := arguments("(" + m[1] + ")")
			for _, item := range items {
				if bareName.MatchString(item) {
					columns = append(columns, item)
				}
			}
			faults = append(faults, p.missing(m[3], columns)...)
			faults = append(faults, p.misfit(u, len(items), arguments("("+m[2]+")"))...)
		}
	}
	return faults
}

// missing returns the columns that a table does not have.
func (p *program) missing(table string, columns []string) (faults []string) {
	for _, name := range columns {
		if !slices.ContainsFunc(p.tables[table], func(c column) bool { return c.name == name }) {
			faults = append(faults, table+" has no column "+name)
		}
	}
	return faults
}

// misfit says that columns do not fit into what they are selected into.
func (p *program) misfit(u unit, columns int, into []string) []string {
	if len(into) == 0 {
		return nil
	}
	fields := len(into)
	for _, m := range declaredNames.FindAllStringSubmatch(u.text, -1) {
		if record := p.records[m[2]]; record != nil && len(into) == 1 && m[1] == into[0] {
			fields = len(record)
		}
	}
	if columns != fields {
		return []string{fmt.Sprintf("%d columns into the %d fields of %s", columns, fields, strings.Join(into, ", "))}
	}
	return nil
}
