package standin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/lobsink/lobsink/lobwriter"
)

// Document is one as it is stored, without lobsink taking part.
type Document struct {
	Key   string `json:"key"`
	Text  string `json:"text"`
	Mark  uint64 `json:"mark"`
	State string `json:"state"`
}

// Documents returns all documents.
func (s *Schema) Documents() ([]Document, error) {
	found, err := s.Memory.Documents(background, lobwriter.Query{Limit: 1 << 30})
	if err != nil {
		return nil, err
	}
	all := make([]Document, len(found))
	for i, d := range found {
		var text []byte
		d, err := s.Memory.Read(background, d.Key, func(piece []byte) error {
			text = append(text, piece...)
			return nil
		})
		if err != nil {
			return nil, err
		}
		all[i] = Document{d.Key, string(text), d.Mark.Seq, d.State.String()}
	}
	return all, nil
}

// Control lets another process see and disturb the server:
//
//	GET  /documents?prefix=lobsink_       the documents of a set of tables
//	POST /rewind?prefix=lobsink_&flushes=3  goes back, see Schema.Rewind
//	POST /faults?every=10                 every n-th flush fails, 0: none
//	POST /cut                             cuts all connections
//	POST /freeze?on=true                  answers nothing, until on=false
func (s *Server) Control() http.Handler {
	mux := http.NewServeMux()
	schema := func(w http.ResponseWriter, r *http.Request) *Schema {
		found := s.Schema(r.FormValue("prefix"))
		if found == nil {
			http.Error(w, "there are no such tables", http.StatusNotFound)
		}
		return found
	}
	mux.HandleFunc("GET /documents", func(w http.ResponseWriter, r *http.Request) {
		if of := schema(w, r); of != nil {
			all, err := of.Documents()
			if err == nil {
				err = json.NewEncoder(w).Encode(all)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
			}
		}
	})
	mux.HandleFunc("POST /rewind", func(w http.ResponseWriter, r *http.Request) {
		if of := schema(w, r); of != nil {
			k, err := strconv.Atoi(r.FormValue("flushes"))
			if err != nil || !of.Rewind(k) {
				http.Error(w, "there were not as many flushes", http.StatusConflict)
			}
		}
	})
	mux.HandleFunc("POST /faults", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.FormValue("every"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		s.SetFaults(everyNth(n))
	})
	mux.HandleFunc("POST /cut", func(http.ResponseWriter, *http.Request) { s.Cut() })
	mux.HandleFunc("POST /freeze", func(_ http.ResponseWriter, r *http.Request) { s.Freeze(r.FormValue("on") == "true") })
	return mux
}

// everyNth has every n-th flush fail, each time in another way.
func everyNth(n int64) func(Request) Fault {
	if n <= 0 {
		return nil
	}
	ways := []Fault{{Cut: true}, {Cut: true, After: true}, {Code: 3113, After: true}, {Code: 60}, {Null: "p_status"}, {Code: 1691}, {Code: 25402, After: true}}
	var flushes atomic.Int64
	return func(r Request) Fault {
		if r.Procedure != "flush" {
			return Fault{}
		}
		k := flushes.Add(1)
		if k%n != 0 {
			return Fault{}
		}
		return ways[int(k/n)%len(ways)]
	}
}

// Addresses is what the program prints when it serves.
type Addresses struct {
	// Connect is for --store oracle:USER@CONNECT.
	Connect string `json:"connect"`
	// Control is the URL of Control.
	Control string `json:"control"`
	// Library is the folder of the client library, for LD_LIBRARY_PATH.
	Library string `json:"library"`
}

func (a Addresses) String() string {
	return fmt.Sprintf("LD_LIBRARY_PATH=%s LOBSINK_ORACLE_PASSWORD=any lobsink run --store 'oracle:lobsink@%s'", a.Library, a.Connect)
}
