package consumer

import (
	"container/list"

	"github.com/lobsink/lobsink/lobwriter"
)

// rowCache keeps the rows that an owner believes to be stored, up to a number
// of bytes; the one used longest ago goes first. A row that is not there is
// unknown, which costs a question and no more.
type rowCache struct {
	limit, bytes int64
	rows         map[string]*list.Element // of cachedRow
	recent       *list.List               // most recently used first
}

type cachedRow struct {
	key string
	row lobwriter.Row
}

// rowBytes is the memory of one cached row beside its key and reason: the row,
// the list's element and the map's entry. TestRowCacheBytes measures it, with
// 200,000 rows.
const rowBytes = 250

func newRowCache(limit int64) rowCache {
	return rowCache{limit: limit, rows: map[string]*list.Element{}, recent: list.New()}
}

func (c *rowCache) get(key string) (lobwriter.Row, bool) {
	e, ok := c.rows[key]
	if !ok {
		return lobwriter.Row{}, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*cachedRow).row, true
}

func (c *rowCache) put(key string, row lobwriter.Row) {
	if e, ok := c.rows[key]; ok {
		r := e.Value.(*cachedRow)
		c.bytes += int64(len(row.Reason) - len(r.row.Reason))
		r.row = row
		c.recent.MoveToFront(e)
	} else {
		c.rows[key] = c.recent.PushFront(&cachedRow{key: key, row: row})
		c.bytes += size(key, row)
	}
	c.shrink(c.limit)
}

// shrink drops the rows used longest ago until at most limit bytes are left.
func (c *rowCache) shrink(limit int64) {
	for c.bytes > limit && c.recent.Len() > 0 {
		r := c.recent.Remove(c.recent.Back()).(*cachedRow)
		delete(c.rows, r.key)
		c.bytes -= size(r.key, r.row)
	}
}

func size(key string, row lobwriter.Row) int64 {
	return rowBytes + int64(len(key)+len(row.Reason))
}
