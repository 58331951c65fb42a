// A service as drainer's handler: it puts documents into an index, one per call or many.
//
//	go run service.go
//	drainer run --topic orders --group indexer -b broker:9092 --split documents --key payload.id \
//	    --handler http --set url=http://localhost:8080/drain --set batch=100
//
// PORT is the port, and INDEX the file that stands for the index.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
)

// Item is a sub-message; a single call is one of them.
type Item struct {
	ID      string   `json:"id"` // the same in each attempt, also after a crash
	Key     string   `json:"key"`
	Attempt int      `json:"attempt"`
	Payload Document `json:"payload"`
}

type Document struct {
	Title  string `json:"title"`
	Locked bool   `json:"locked"`
}

type Call struct {
	Item
	Batch []Item `json:"batch"`
}

type Result struct {
	ID     string  `json:"id"`
	Result string  `json:"result"` // done, retry, skip, give-up or fail
	After  float64 `json:"after,omitempty"`
	Text   string  `json:"text,omitempty"`
}

type Index struct{ file *os.File }

// Put handles one document. It may come again, so put it under its id rather than add it.
func (index *Index) Put(item Item) Result {
	if item.Payload.Title == "" {
		return Result{ID: item.ID, Result: "give-up", Text: "the document has no title"}
	}
	if item.Payload.Locked && item.Attempt < 3 {
		return Result{ID: item.ID, Result: "retry", After: 0.05, Text: "the document is locked"}
	}
	// Done must be true: answer after the write, and never for one that failed.
	if _, err := fmt.Fprintf(index.file, "%s %s\n", item.ID, item.Key); err != nil {
		return Result{ID: item.ID, Result: "fail", Text: err.Error()}
	}
	return Result{ID: item.ID, Result: "done"}
}

func (index *Index) ServeHTTP(answer http.ResponseWriter, request *http.Request) {
	var call Call
	if err := json.NewDecoder(request.Body).Decode(&call); err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest) // the sub-message's own fault
		return
	}
	answer.Header().Set("Content-Type", "application/json")
	if call.Batch == nil {
		if result := index.Put(call.Item); result.Result == "done" {
			answer.WriteHeader(http.StatusNoContent)
		} else {
			json.NewEncoder(answer).Encode(result)
		}
		return
	}
	results := []Result{} // one for each item: an item that is not done holds up only its own lane
	for _, item := range call.Batch {
		results = append(results, index.Put(item))
	}
	json.NewEncoder(answer).Encode(map[string]any{"results": results})
}

func main() {
	name := cmp.Or(os.Getenv("INDEX"), "index.txt")
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("POST /drain", &Index{file})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+cmp.Or(os.Getenv("PORT"), "8080"), nil))
}
