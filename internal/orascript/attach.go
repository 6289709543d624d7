package orascript

import (
	"fmt"
	"slices"
	"strings"
)

// Attachment says in which column of which table the text of documents is, where
// that is not lobsink's own.
type Attachment struct {
	Owner, Name Name
	// KeyName is the column of the document's key. It has a unique index of its own.
	KeyName Name
	// KeyType is the type of that column: VARCHAR2, CHAR, NUMBER or RAW.
	KeyType string
	// BodyName is the column of the text, a CLOB.
	BodyName Name
	// TouchName is a column that gets the time with each flush; "": none.
	TouchName Name
	// InsertsRows says that a row that is not there is inserted. Otherwise a
	// document without a row is refused.
	InsertsRows bool
	// Insert is what other columns get then.
	Insert []ColumnValue
}

// ColumnValue is a column and the constant that it gets.
type ColumnValue struct {
	Name  Name
	Value string
}

// Column returns the quoted name.
func (v ColumnValue) Column() string { return v.Name.Quoted() }

// KeyTypes are the types that a key column may have.
func KeyTypes() []string { return []string{"VARCHAR2", "CHAR", "NUMBER", "RAW"} }

// AttachmentText is an Attachment as an operator writes it.
type AttachmentText struct {
	// Table is SCHEMA.TABLE.
	Table, Key, KeyType, Body, Touch string
	// Insert holds COLUMN=VALUE, or "" for nothing but key and text; nil: rows are
	// not inserted.
	Insert []string
}

// Parse checks an attachment. All its names and values are safe in SQL then.
func (t AttachmentText) Parse() (*Attachment, error) {
	owner, table, found := cutQualified(t.Table)
	if !found {
		return nil, fmt.Errorf("table: %q is no SCHEMA.TABLE", t.Table)
	}
	a := &Attachment{KeyType: strings.ToUpper(t.KeyType), InsertsRows: t.Insert != nil}
	for _, n := range []struct {
		what, text string
		to         *Name
	}{{"table", owner, &a.Owner}, {"table", table, &a.Name}, {"key", t.Key, &a.KeyName}, {"body", t.Body, &a.BodyName}, {"touch", t.Touch, &a.TouchName}} {
		if n.what == "touch" && n.text == "" {
			continue
		}
		name, err := ParseName(n.text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.what, err)
		}
		*n.to = name
	}
	if !slices.Contains(KeyTypes(), a.KeyType) {
		return nil, fmt.Errorf("key type: %q is none of %s", t.KeyType, strings.Join(KeyTypes(), ", "))
	}
	taken := []Name{a.KeyName, a.BodyName}
	for _, text := range t.Insert {
		if text == "" {
			continue
		}
		v, err := parseColumnValue(text)
		if err != nil {
			return nil, fmt.Errorf("insert: %w", err)
		}
		if slices.Contains(taken, v.Name) {
			return nil, fmt.Errorf("insert: column %s has a value already", v.Name)
		}
		taken = append(taken, v.Name)
		a.Insert = append(a.Insert, v)
	}
	if a.KeyName == a.BodyName || a.TouchName != "" && slices.Contains(taken[:2], a.TouchName) {
		return nil, fmt.Errorf("key, body and touch are different columns")
	}
	if len(strings.Join(t.Insert, ", ")) > 2000 {
		return nil, fmt.Errorf("insert: more than 2,000 bytes of values")
	}
	return a, nil
}

// cutQualified cuts at the first dot outside of double quotes.
func cutQualified(text string) (owner, table string, found bool) {
	inQuotes := false
	for i, r := range text {
		switch {
		case r == '"':
			inQuotes = !inQuotes
		case r == '.' && !inQuotes:
			return text[:i], text[i+1:], true
		}
	}
	return "", "", false
}

func parseColumnValue(text string) (ColumnValue, error) {
	column, value, found := strings.Cut(text, "=")
	if !found {
		return ColumnValue{}, fmt.Errorf("%q is no COLUMN=VALUE", text)
	}
	name, err := ParseName(strings.TrimSpace(column))
	if err != nil {
		return ColumnValue{}, err
	}
	value = strings.TrimSpace(value)
	if err := checkValue(value); err != nil {
		return ColumnValue{}, fmt.Errorf("column %s: %w", name, err)
	}
	return ColumnValue{name, value}, nil
}

// What the template asks for.

// QualifiedTable returns "OWNER"."TABLE".
func (a *Attachment) QualifiedTable() string { return a.Owner.Quoted() + "." + a.Name.Quoted() }

// Shown returns the table as text within a string literal.
func (a *Attachment) Shown() string { return string(a.Owner) + "." + string(a.Name) }

// OwnerName returns the quoted owner of the table.
func (a *Attachment) OwnerName() string { return a.Owner.Quoted() }

// Key returns the quoted key column.
func (a *Attachment) Key() string { return a.KeyName.Quoted() }

// Body returns the quoted text column.
func (a *Attachment) Body() string { return a.BodyName.Quoted() }

// Touch returns the quoted column that gets the time; "": none.
func (a *Attachment) Touch() string {
	if a.TouchName == "" {
		return ""
	}
	return a.TouchName.Quoted()
}

// OwnerLiteral returns the owner as a string literal.
func (a *Attachment) OwnerLiteral() string { return a.Owner.Literal() }

// TableLiteral returns the table as a string literal.
func (a *Attachment) TableLiteral() string { return a.Name.Literal() }

// KeyLiteral returns the key column as a string literal.
func (a *Attachment) KeyLiteral() string { return a.KeyName.Literal() }

// BodyLiteral returns the text column as a string literal.
func (a *Attachment) BodyLiteral() string { return a.BodyName.Literal() }

// TouchLiteral returns the column that gets the time as a string literal, or NULL.
func (a *Attachment) TouchLiteral() string { return a.TouchName.Literal() }

// InsertLiteral returns what inserted rows get, for people to read, as a string
// literal; NULL: rows are not inserted.
func (a *Attachment) InsertLiteral() string {
	if !a.InsertsRows {
		return "NULL"
	}
	all := []string{"key and text"}
	for _, v := range a.Insert {
		all = append(all, string(v.Name)+" = "+v.Value)
	}
	return literal(strings.Join(all, ", "))
}

// JoinKey returns the condition under which row t of the table is that of document
// d. A document whose key cannot be one of the table has none.
func (a *Attachment) JoinKey() string {
	column := "t." + a.Key()
	switch a.KeyType {
	case "NUMBER":
		return column + ` = CASE WHEN REGEXP_LIKE(d.doc_key, '^(0|-?[1-9][0-9]{0,37})$') THEN TO_NUMBER(d.doc_key) END`
	case "RAW":
		return column + ` = CASE WHEN REGEXP_LIKE(d.doc_key, '^([0-9A-F][0-9A-F])+$') THEN HEXTORAW(d.doc_key) END`
	case "CHAR":
		return "RTRIM(" + column + ") = d.doc_key"
	}
	return column + " = d.doc_key"
}
