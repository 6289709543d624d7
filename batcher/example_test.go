package batcher_test

import (
	"fmt"
	"time"

	"github.com/lobsink/lobsink/batcher"
)

func Example() {
	b := batcher.New(batcher.Limits{MaxAge: time.Second, ChunkBytes: 32767})
	now := time.Now()

	b.Add(now, batcher.Fragment{Key: "order-7", Seq: 1, Data: []byte("<order>")})
	b.Add(now, batcher.Fragment{Key: "order-8", Seq: 2, Data: []byte("<order>")})
	b.Add(now, batcher.Fragment{Key: "order-7", Seq: 3, Data: []byte("</order>"), Final: true})

	// order-7 is complete and due at once. order-8 waits for more.
	for _, g := range b.Take(now, batcher.Limit{Documents: 100, Bytes: 4 << 20}) {
		fmt.Println(g.Key, "from", g.First(), "to", g.Last(), "has", g.Bytes, "bytes")
		b.Settle(g.Key, g.Last()) // the database has it
	}
	deadline, _ := b.Deadline()
	fmt.Println(b.Documents(), "document waits for another", deadline.Sub(now))
	// Output:
	// order-7 from 1 to 3 has 15 bytes
	// 1 document waits for another 1s
}
