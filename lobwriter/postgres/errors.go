package postgres

import (
	"errors"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lobsink/lobsink/lobwriter"
)

// meaning is what a SQLSTATE means for the caller.
type meaning struct {
	kind lobwriter.Kind
	hint string
}

const (
	hintSetup  = "the tables are not those of lobsink: run: " + setupCommand
	hintGrants = "grant the user what deploy/postgres/00001_documents.sql lists, or connect as the user who ran setup"
	hintServer = "start the server, or correct --store"
	hintLogin  = "correct user and password, or the server's pg_hba.conf"
	hintDamage = "the database is damaged: restore it from a backup; lobsink then heals it from the stream"
)

// states are the SQLSTATEs with a meaning of their own; classes hold for the others
// that begin with the same two characters. What is in neither is Transient.
// https://www.postgresql.org/docs/current/errcodes-appendix.html
var (
	states = map[string]meaning{
		// Somebody who did not hold the fence row made the document. The next
		// flush sees it and is answered as stale.
		pgerrcode.UniqueViolation: {lobwriter.Transient, "another program writes to the tables"},

		pgerrcode.ReadOnlySQLTransaction: {lobwriter.Transient, "the server takes no writes: it is a standby, or read-only"},
		pgerrcode.TooManyConnections:     {lobwriter.Transient, "raise max_connections of the server, or run fewer members"},
		pgerrcode.DiskFull:               {lobwriter.Space, "make room on the disk of the database"},

		pgerrcode.InvalidCatalogName:    {lobwriter.Fatal, "create the database, or correct its name"},
		pgerrcode.InvalidSchemaName:     {lobwriter.Fatal, hintSetup},
		pgerrcode.UndefinedTable:        {lobwriter.Fatal, hintSetup},
		pgerrcode.UndefinedColumn:       {lobwriter.Fatal, hintSetup},
		pgerrcode.UndefinedFunction:     {lobwriter.Fatal, hintSetup},
		pgerrcode.UndefinedObject:       {lobwriter.Fatal, hintSetup},
		pgerrcode.InsufficientPrivilege: {lobwriter.Fatal, hintGrants},
		pgerrcode.DataCorrupted:         {lobwriter.Fatal, hintDamage},
		pgerrcode.IndexCorrupted:        {lobwriter.Fatal, hintDamage},
	}
	classes = map[string]meaning{
		"22": {lobwriter.Invalid, ""},                                   // data exception
		"23": {lobwriter.Invalid, "another program changed the tables"}, // integrity constraint violation
		"28": {lobwriter.Credentials, hintLogin},                        // invalid authorization specification
		"54": {lobwriter.Invalid, ""},                                   // program limit exceeded
	}
)

func meaningOf(code string) meaning {
	if m, ok := states[code]; ok || len(code) < 2 {
		return m
	}
	return classes[code[:2]]
}

// classify gives an error its kind. What has one already stays as it is.
func classify(op string, err error) error {
	var fenced *lobwriter.FencedError
	var known *lobwriter.Error
	switch {
	case err == nil, errors.Is(err, lobwriter.ErrNotFound), errors.As(err, &fenced):
		return err
	case errors.As(err, &known):
		return known // without what the driver says around it
	}
	e := &lobwriter.Error{Op: op, Err: err}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		e.Err, e.Hint = &connectError{connect}, hintServer
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		m := meaningOf(pg.Code)
		e.Kind, e.Code, e.Hint = m.kind, pg.Code, m.hint
	}
	return e
}

// isContent reports that the database refused a flush for what it contains, and
// has undone it.
func isContent(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && len(pg.Code) == 5 && classes[pg.Code[:2]].kind == lobwriter.Invalid
}
