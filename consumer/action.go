package consumer

import (
	"github.com/lobsink/lobsink/batcher"
	"github.com/lobsink/lobsink/lobwriter"
)

// Turn numbers the attempts of one Partition to own its partition. Every action
// carries the turn that asked for it and its answer brings the turn back, so
// that answers to a turn that was dropped meanwhile are recognised and ignored.
type Turn int

// Action is something that a Partition wants done. Each is answered by the
// event that its comment names, unless the turn was dropped meanwhile. Actions
// of one kind are never outstanding twice in a turn.
type Action interface{ action() }

type (
	// DoClaim claims the partition in the store. Answer: Claimed.
	DoClaim struct{ Turn Turn }

	// DoInspect reads from the stream what tells whether it is the one that
	// the checkpoint belongs to. Answer: Inspected.
	DoInspect struct {
		Turn                Turn
		Checkpoint, Highest lobwriter.Position
	}

	// DoOpen creates the consumer of the claim, which begins at stream
	// sequence Start. It never updates an existing one. Answer: Opened.
	DoOpen struct {
		Turn  Turn
		Claim lobwriter.Claim
		Start uint64
	}

	// DoConfirm reads the fence row, after the consumer was created. Answer:
	// Confirmed.
	DoConfirm struct{ Turn Turn }

	// DoSweep deletes every other consumer of the partition, whatever its
	// epoch: those on a list that was made before the claim was seen to be
	// current. A process that was frozen in between then cannot delete its
	// successor's. No answer: the next claim sweeps again.
	DoSweep struct {
		Turn  Turn
		Claim lobwriter.Claim
	}

	// DoFetch reads messages, at most Bytes of them. Answers: Received, any
	// number of times, then Fetched.
	DoFetch struct {
		Turn  Turn
		Bytes int64
	}

	// DoLook asks the server about stream and consumer while no fetch is
	// outstanding: the stream's last message first; after it the time of the
	// message Last, the consumer, and whether the partition has messages above
	// Read, up to where it has been read. Answer: Looked.
	DoLook struct {
		Turn Turn
		Last lobwriter.Position
		Read uint64
	}

	// DoRenew extends the lease and reads the fence row. Answer: Renewed.
	DoRenew struct {
		Turn  Turn
		Claim lobwriter.Claim
	}

	// DoRead reads the stored rows of keys. Answer: RowsRead.
	DoRead struct {
		Turn Turn
		Keys []string
	}

	// DoLetters publishes dead letters and has them confirmed, however long
	// that takes; they may be there already. Answer: Lettered.
	DoLetters struct {
		Turn    Turn
		Batch   int
		Letters []Refused
	}

	// DoFlush sends a flush. The same pointer sent again is the identical
	// flush. Answer: Flushed.
	DoFlush struct {
		Turn  Turn
		Flush *lobwriter.Flush
	}

	// DoAck acknowledges the kept message with sequence Seq and everything
	// before it, and has that confirmed. Answer: Acked.
	DoAck struct {
		Turn Turn
		Seq  uint64
	}

	// DoHalt ends an outstanding fetch early. No answer of its own: Fetched
	// follows.
	DoHalt struct{ Turn Turn }

	// DoDrop ends the turn: nothing of it is waited for any more. No answer.
	DoDrop struct {
		Turn   Turn
		Reason Doubt
		// Detail says it for the log.
		Detail string
	}

	// DoRelease gives the lease back. Answer: Released.
	DoRelease struct {
		Turn  Turn
		Claim lobwriter.Claim
	}

	// DoReport tells the operator that the partition stands still, and what to
	// do. No answer.
	DoReport struct{ Err error }
)

func (DoClaim) action()   {}
func (DoInspect) action() {}
func (DoOpen) action()    {}
func (DoConfirm) action() {}
func (DoSweep) action()   {}
func (DoFetch) action()   {}
func (DoLook) action()    {}
func (DoRenew) action()   {}
func (DoRead) action()    {}
func (DoLetters) action() {}
func (DoFlush) action()   {}
func (DoAck) action()     {}
func (DoHalt) action()    {}
func (DoDrop) action()    {}
func (DoRelease) action() {}
func (DoReport) action()  {}

// Received is one message as it came from the partition's consumer.
type Received struct {
	Fragment batcher.Fragment
	// Consumer is the message's consumer sequence, from 1.
	Consumer uint64
	// Deliveries counts how often the message was delivered, this one included.
	Deliveries uint64
	// Orphan marks a message without a readable key: it belongs to no
	// document. Fragment.Hole says why.
	Orphan bool
	// Connection is StreamFacts.Connection, as it stood after the message had
	// arrived.
	Connection uint64
	// Stray names the partition that the message belongs to when that is not
	// the one it was read from; it is nil for every message in its place.
	Stray error
}

// Refused is a fragment on its way to the dead letters.
type Refused struct {
	Fragment batcher.Fragment
	// Generation of the document; 0 where there is no document.
	Generation int64
	Reason     batcher.Reason
}

// StreamFacts is what the stream says about itself.
type StreamFacts struct {
	// Created is the stream's creation time in Unix nanoseconds.
	Created int64
	// First is the sequence of the first message still stored; one above the
	// last when there is none.
	First uint64
	// Last is the last message, also when it is no longer stored.
	Last lobwriter.Position
	// Leader is the server that leads the stream; "" when it has one replica.
	Leader string
	// Connection counts how often the connection to NATS was made again. An
	// answer during which it changed is none. Behind another connection the
	// stream may have lost its tail, and the word of it may come later than
	// what the stream says and delivers.
	Connection uint64
}

// Inspection is the answer to DoInspect.
type Inspection struct {
	StreamFacts
	// CheckpointTime and HighestTime are the times of the messages at the
	// checkpoint and at the highest position; 0 where they are no longer
	// stored.
	CheckpointTime, HighestTime int64
}

// Look is the answer to DoLook.
type Look struct {
	StreamFacts
	// LastTime is the time of the message that was received last; 0 when it is
	// no longer stored.
	LastTime int64
	// Delivered is the consumer sequence of the last message delivered.
	Delivered uint64
	// Changed names a setting of the consumer that somebody edited; "": none.
	Changed string
	// More: the stream stores messages of the partition above DoLook.Read. The stream itself has to say so: a consumer's count of what
	// is pending rises some time after a message was stored and acknowledged to
	// its publisher.
	More bool
	// ConsumerLeader is the server that leads the consumer; "" when it has one
	// replica.
	ConsumerLeader string
}

// Doubt says why a turn was dropped. It is a metric label.
type Doubt string

// The reasons for which a turn is dropped.
const (
	DoubtOrder     Doubt = "order"       // sequence numbers are not contiguous
	DoubtQuiet     Doubt = "quiet"       // the server delivered what never arrived
	DoubtWentBack  Doubt = "stream-back" // the stream is not where it was
	DoubtConsumer  Doubt = "consumer"    // the consumer failed
	DoubtReconnect Doubt = "reconnect"   // the connection was lost and is back
	DoubtLeader    Doubt = "leader"      // the stream or consumer changed its leader
	DoubtFenced    Doubt = "fenced"      // the claim is not current
	DoubtDatabase  Doubt = "database"    // the database is not where it was
	DoubtLease     Doubt = "lease"       // the lease may have run out
	DoubtClaim     Doubt = "claim"       // the claim could not be completed
	DoubtIdentity  Doubt = "identity"    // the stream is not the one stored
	DoubtGap       Doubt = "gap"         // unread messages may be gone
	DoubtStray     Doubt = "stray"       // a message of another partition
	DoubtRefused   Doubt = "refused"     // the store refuses even an empty group
	DoubtHandover  Doubt = "handover"    // it could not be handed over in time
	DoubtRetention Doubt = "retention"   // the stream discards what is not flushed
)

// The codes of the reasons that lobsink itself gives for a dead letter, beside
// those of a fragment's own faults. Other codes are the database's.
const (
	CodeBadKey      = "bad-key"     // the key cannot be read
	CodeLate        = "late"        // the document is complete
	CodeQuarantined = "quarantined" // the document is quarantined
)
