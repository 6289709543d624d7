package oracle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
)

// Admin is a session of the owner of the tables, to install and to look after
// them. It is for one goroutine.
type Admin struct {
	o    Options
	db   *sql.DB
	pool *connector
}

// CompileError is a row of ALL_ERRORS.
type CompileError struct {
	Name, Type   string
	Line, Column int64
	Text         string
}

func (e CompileError) String() string {
	return fmt.Sprintf("%s %s, line %d, column %d: %s", strings.ToLower(e.Type), e.Name, e.Line, e.Column, strings.TrimSpace(e.Text))
}

// OpenAdmin connects, whether there are tables or not.
func OpenAdmin(ctx context.Context, o Options) (*Admin, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	c := newConnector(o, o.Services[0], nil, nil)
	c.bare = true
	a := &Admin{o: o, db: sql.OpenDB(c), pool: c}
	a.db.SetMaxOpenConns(1)
	if err := a.db.PingContext(ctx); err != nil {
		return nil, errors.Join(classify("connect", err), a.Close())
	}
	return a, nil
}

// Close ends the session.
func (a *Admin) Close() error {
	err := a.db.Close()
	a.pool.pending.Wait()
	return err
}

// Exec executes one statement: SQL without its semicolon, or a block or a unit of
// PL/SQL with it. A unit that compiles with errors is no error here: see
// CompileErrors.
//
// Statements of DDL have no deadline of their own: they take as long as they take,
// and one that was given up may still be done.
func (a *Admin) Exec(ctx context.Context, statement string) error {
	conn, err := a.db.Conn(ctx)
	if err != nil {
		return classify("schema", err)
	}
	defer conn.Close()
	_, err = conn.ExecContext(tagged(ctx, "schema", a.o.clientInfo()), statement, statementOptions()...)
	if codeOf(err) == compiledWithErrors {
		return nil
	}
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return classify("schema", err)
}

// compiledWithErrors is a warning: the unit is there, and does not work.
const compiledWithErrors = 24344

// CompileErrors returns what is wrong with the units whose names begin with
// Options.Prefix.
func (a *Admin) CompileErrors(ctx context.Context) ([]CompileError, error) {
	ctx, cancel := deadline(ctx, a.o.FlushTimeout)
	defer cancel()
	rows, err := a.db.QueryContext(ctx, `SELECT name, type, line, position, text FROM all_errors
 WHERE owner = NVL(:p_owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND attribute = 'ERROR' AND name LIKE REPLACE(UPPER(:p_prefix), '_', '\_') || '%' ESCAPE '\' ORDER BY name, type, sequence`,
		sql.Named("p_owner", string(a.o.owner())), sql.Named("p_prefix", a.o.Prefix))
	if err != nil {
		return nil, classify("schema", err)
	}
	defer rows.Close()
	var all []CompileError
	for rows.Next() {
		var e CompileError
		if err := rows.Scan(&e.Name, &e.Type, &e.Line, &e.Column, &e.Text); err != nil {
			return nil, classify("schema", err)
		}
		all = append(all, e)
	}
	return all, classify("schema", rows.Err())
}

// Version returns the newest migration that was applied; 0: there are no tables.
func (a *Admin) Version(ctx context.Context) (version int64, err error) {
	ctx, cancel := deadline(ctx, a.o.FlushTimeout)
	defer cancel()
	err = a.db.QueryRowContext(ctx, `SELECT NVL(MAX(version), 0) FROM `+a.o.qualified("schema")).Scan(&version)
	if codeOf(err) == noSuchTable {
		return 0, nil
	}
	return version, classify("schema", err)
}

// noSuchTable is ORA-00942.
const noSuchTable = 942
