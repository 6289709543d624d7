package lobwriter

import (
	"errors"
	"fmt"
)

// ErrNotFound means that there is no such document, or no binding yet.
var ErrNotFound = errors.New("not found")

// ErrDamaged means that the stored text of a document is not what its row says.
var ErrDamaged = errors.New("the text is not what its row says")

// Kind says what an error means for its caller.
type Kind int

// The kinds of errors.
const (
	// Transient: the outcome is unknown or nothing happened; repeat the
	// identical call. The default for errors that nobody knows.
	Transient Kind = iota
	// Fenced: the claim is no longer current; claim again.
	Fenced
	// Held: somebody else holds the lease; try again later.
	Held
	// Invalid: the call itself breaks the contract, or the database refuses
	// its content; repeating it cannot help.
	Invalid
	// Fatal: configuration (schema, version, grants, another stream); an
	// operator has to act.
	Fatal
	// Credentials: the database refuses who we are; stop dialling but for one
	// probe in five minutes.
	Credentials
	// Space: the database has no room; pause, alert, retry slowly.
	Space
)

func (k Kind) String() string {
	switch k {
	case Fenced:
		return "fenced"
	case Held:
		return "held"
	case Invalid:
		return "invalid"
	case Fatal:
		return "fatal"
	case Credentials:
		return "credentials"
	case Space:
		return "space"
	}
	return "transient"
}

// Error is an error of a store with its kind.
type Error struct {
	Kind Kind
	// Op is what the store was doing, such as "flush".
	Op string
	// Code is the database's own code (SQLSTATE, ORA-nnnnn), if there is one.
	Code string
	// Hint tells the operator what to do; may be empty.
	Hint string
	Err  error
}

func (e *Error) Error() string {
	s := e.Op + ": " + e.Err.Error()
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// FencedError is the answer to a flush whose claim, life or flush number is not
// the stored one. Nothing was written.
type FencedError struct {
	// Stored is the fence row as it stands.
	Stored Fence
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("fenced: the stored fence row has life %d, epoch %d, claim %s, flush %d",
		e.Stored.Life, e.Stored.Epoch, e.Stored.ClaimID, e.Stored.Flush)
}

// KindOf returns the kind of an error: Transient for one that has none.
func KindOf(err error) Kind {
	var f *FencedError
	if errors.As(err, &f) {
		return Fenced
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Transient
}

// CodeOf returns the database's own code of an error, or "".
func CodeOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// Serves returns a Fatal error if the tables serve another stream than s, by name
// or partition count. Another creation time is for the caller to judge.
func (b Binding) Serves(s Stream) error {
	if b.Name == s.Name && b.Partitions == s.Partitions {
		return nil
	}
	hint := "name that stream, or another database"
	if b.Name == s.Name {
		hint = fmt.Sprintf("their number is fixed while messages are stored: make the stream with %d again, or see lobsink checkpoint partitions", b.Partitions)
	}
	return &Error{Kind: Fatal, Op: "bind",
		Err:  fmt.Errorf("the database serves stream %s with %d partitions, not stream %s with %d", b.Name, b.Partitions, s.Name, s.Partitions),
		Hint: hint}
}
