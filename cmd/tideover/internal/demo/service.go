package demo

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// service returns the HTTP service that the workflows of the demo call. /flaky alternates between
// 30 s with many failures and 30 s with few; the other paths fail at a constant rate.
func service() http.Handler {
	born := time.Now()
	bad := func() bool { return int(time.Since(born)/(30*time.Second))%2 == 0 }
	mux := http.NewServeMux()
	mux.HandleFunc("POST /flaky", func(w http.ResponseWriter, r *http.Request) {
		_ = pause(r.Context(), 300*time.Millisecond)
		share := 0.25
		if bad() {
			share = 0.65
		}
		if rand.Float64() < share {
			http.Error(w, "the tide is out", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, "done in the end, order ", number(r))
	})
	mux.HandleFunc("POST /limited", func(w http.ResponseWriter, r *http.Request) {
		if rand.Float64() < 0.5 {
			w.Header().Set("Retry-After", "4")
			http.Error(w, "too many labels", http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, "label ", number(r)*7)
	})
	mux.HandleFunc("POST /slow", func(w http.ResponseWriter, r *http.Request) {
		if rand.Float64() < 0.6 {
			_ = pause(r.Context(), 10*time.Second) // longer than any client waits
			return
		}
		fmt.Fprint(w, "12 pages of data")
	})
	mux.HandleFunc("POST /refusing", func(w http.ResponseWriter, r *http.Request) {
		if number(r)/5%2 == 0 {
			http.Error(w, "order "+strconv.Itoa(number(r))+" was refunded already", http.StatusUnprocessableEntity)
			return
		}
		if rand.Float64() < 0.5 {
			http.Error(w, "the bank does not answer", http.StatusGatewayTimeout)
			return
		}
		fmt.Fprint(w, "refund granted")
	})
	return mux
}

func number(r *http.Request) int {
	n, _ := strconv.Atoi(r.URL.Query().Get("order"))
	return n
}
