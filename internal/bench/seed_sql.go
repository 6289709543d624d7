package bench

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"
	"unicode/utf8"
)

// Statements are how a database appends without lobsink.
type Statements struct {
	// Open opens the database with one connection.
	Open func(ctx context.Context) (*sql.DB, error)
	// Append rewrites the whole value, Write adds one piece.
	Append, Write Statement
}

// Statement is a way to append a piece of text, and the table for it.
type Statement struct {
	// Create makes the table, with one empty document where Do needs one. A
	// statement of it may fail if its text begins with "--optional".
	Create []string
	Drop   string
	Do     string
	// Arguments returns those of Do. n counts from 1.
	Arguments func(n int, text string) []any
	// Quadratic tells that each append costs more than the one before.
	Quadratic bool
}

func textOnly(_ int, text string) []any { return []any{text} }

func numbered(n int, text string) []any { return []any{n, text} }

// Names of the tables of Statements, behind the prefix.
const (
	appendTable = "seed_append"
	writeTable  = "seed_write"
)

// SQLiteStatements are those of SQLite.
func SQLiteStatements(prefix string, open func(context.Context) (*sql.DB, error)) Statements {
	a, w := prefix+appendTable, prefix+writeTable
	return Statements{
		Open: open,
		Append: Statement{
			Create:    []string{"create table " + a + " (id integer primary key, body text not null)", "insert into " + a + " values (1, '')"},
			Drop:      "drop table if exists " + a,
			Do:        "update " + a + " set body = body || ? where id = 1",
			Arguments: textOnly, Quadratic: true,
		},
		Write: Statement{
			Create:    []string{"create table " + w + " (document integer not null, n integer not null, body text not null, primary key (document, n))"},
			Drop:      "drop table if exists " + w,
			Do:        "insert into " + w + " values (1, ?, ?)",
			Arguments: numbered,
		},
	}
}

// PostgreSQLStatements are those of PostgreSQL. Text is compressed as lobsink has
// it compressed, which is faster than the default.
func PostgreSQLStatements(prefix string, open func(context.Context) (*sql.DB, error)) Statements {
	a, w := prefix+appendTable, prefix+writeTable
	compress := func(table string) string {
		return optional + "alter table " + table + " alter column body set compression lz4"
	}
	return Statements{
		Open: open,
		Append: Statement{
			Create:    []string{"create table " + a + " (id bigint primary key, body text not null)", compress(a), "insert into " + a + " values (1, '')"},
			Drop:      "drop table if exists " + a,
			Do:        "update " + a + " set body = body || $1 where id = 1",
			Arguments: textOnly, Quadratic: true,
		},
		Write: Statement{
			Create:    []string{"create table " + w + " (document bigint not null, n bigint not null, body text not null, primary key (document, n))", compress(w)},
			Drop:      "drop table if exists " + w,
			Do:        "insert into " + w + " values (1, $1, $2)",
			Arguments: numbered,
		},
	}
}

// OracleStatements are those of the report. They were not run on Oracle.
func OracleStatements(prefix string, open func(context.Context) (*sql.DB, error)) Statements {
	table := func(name string) Statement {
		return Statement{
			Create: []string{
				"create table " + name + " (id number primary key, body clob) lob (body) store as securefile",
				"insert into " + name + " values (1, empty_clob())",
			},
			Drop: "begin execute immediate 'drop table " + name + " purge'; exception when others then if sqlcode <> -942 then raise; end if; end;",
		}
	}
	locator := func(name, call string) string {
		return "declare l clob; begin select body into l from " + name + " where id = 1 for update; " + call + "; end;"
	}
	a, w := prefix+appendTable, prefix+writeTable
	s := Statements{Open: open, Append: table(a), Write: table(w)}
	s.Append.Do, s.Append.Arguments = locator(a, "dbms_lob.append(l, :1)"), textOnly
	s.Append.Quadratic = true
	s.Write.Do = locator(w, "dbms_lob.writeappend(l, :1, :2)")
	s.Write.Arguments = func(_ int, text string) []any { return []any{utf8.RuneCountInString(text), text} }
	return s
}

// optional begins a statement that may fail: not every version has what it does.
const optional = "--optional\n"

// remove drops the tables.
func (s *Statements) remove(ctx context.Context) (err error) {
	db, err := s.Open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, drop := range []string{s.Append.Drop, s.Write.Drop} {
		if _, err := db.ExecContext(ctx, drop); err != nil {
			return err
		}
	}
	return nil
}

// naive measures one statement per text, in one transaction.
func (s *Seed) naive(ctx context.Context, st Statement, texts [][]byte) (_ *trial, err error) {
	db, err := s.Statements.Open(ctx)
	if err != nil {
		return nil, err
	}
	for _, query := range append([]string{st.Drop}, st.Create...) {
		if _, err := db.ExecContext(ctx, query); err != nil && !strings.HasPrefix(query, optional) {
			return nil, errors.Join(err, db.Close())
		}
	}
	before, err := s.Instruments.Read(ctx, s.Tables.Prefix())
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	t, err := st.run(ctx, db, texts, s.timeLimit())
	// The counters of a session are whole when it has ended.
	if err = errors.Join(err, db.Close()); err != nil {
		return nil, err
	}
	after, err := s.Instruments.Read(ctx, s.Tables.Prefix())
	t.counters = after.since(before)
	return t, err
}

// run appends the texts in one transaction, until limit.
func (st *Statement) run(ctx context.Context, db *sql.DB, texts [][]byte, limit time.Duration) (*trial, error) {
	began := time.Now()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // does nothing after the commit
	do, err := tx.PrepareContext(ctx, st.Do)
	if err != nil {
		return nil, err
	}
	marks := make([]time.Duration, 0, len(texts))
	for i, text := range texts {
		if _, err := do.ExecContext(ctx, st.Arguments(i+1, string(text))...); err != nil {
			return nil, err
		}
		took := time.Since(began)
		if marks = append(marks, took); took > limit && i+1 < len(texts) {
			return &trial{took: took, cut: i + 1, half: marks[i/2], quadratic: st.Quadratic}, nil
		}
	}
	err = tx.Commit()
	return &trial{took: time.Since(began), quadratic: st.Quadratic}, err
}
