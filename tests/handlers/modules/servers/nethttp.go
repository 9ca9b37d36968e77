package main

import (
	"net"
	"net/http"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/mux"
	"github.com/julienschmidt/httprouter"
)

func (s *shop) serveCheckout(w http.ResponseWriter, r *http.Request) { s.checkout() }

func (s *shop) serveStock(w http.ResponseWriter, r *http.Request) { s.stock() }

func (s *shop) serveSpawn(w http.ResponseWriter, r *http.Request) {
	done := make(chan bool)
	go func() {
		wait()
		done <- true
	}()
	go s.prices(done)
	awaitAll(done)
}

func logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		w.Header()
	})
}

func serveNetHTTP(listener net.Listener) []func() {
	group := http.NewServeMux()
	group.HandleFunc("/stock", theShop.serveStock)
	mux := http.NewServeMux()
	mux.HandleFunc("/checkout", theShop.serveCheckout)
	mux.HandleFunc("/closure", func(w http.ResponseWriter, r *http.Request) { wait() })
	mux.Handle("/group/", http.StripPrefix("/group", logged(group)))
	mux.HandleFunc("/spawn", theShop.serveSpawn)
	go http.Serve(listener, logged(mux))
	return httpRequests(listener)
}

func serveChi(listener net.Listener) []func() {
	router := chi.NewRouter()
	router.Use(middleware.RequestID, middleware.Recoverer, logged)
	router.Get("/checkout", theShop.serveCheckout)
	router.With(logged).Get("/closure", func(w http.ResponseWriter, r *http.Request) { wait() })
	router.Route("/group", func(r chi.Router) {
		r.Use(middleware.NoCache)
		r.Get("/stock", theShop.serveStock)
	})
	router.Get("/spawn", theShop.serveSpawn)
	go http.Serve(listener, router)
	return httpRequests(listener)
}

func serveGorilla(listener net.Listener) []func() {
	router := mux.NewRouter()
	router.Use(logged)
	router.HandleFunc("/checkout", theShop.serveCheckout)
	router.HandleFunc("/closure", func(w http.ResponseWriter, r *http.Request) { wait() })
	router.PathPrefix("/group").Subrouter().HandleFunc("/stock", theShop.serveStock)
	router.HandleFunc("/spawn", theShop.serveSpawn)
	go http.Serve(listener, router)
	return httpRequests(listener)
}

func (s *shop) routerCheckout(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
	s.checkout()
}

func serveHTTPRouter(listener net.Listener) []func() {
	router := httprouter.New()
	router.GET("/checkout", theShop.routerCheckout)
	router.GET("/closure", func(http.ResponseWriter, *http.Request, httprouter.Params) { wait() })
	router.HandlerFunc("GET", "/group/:what", theShop.serveStock)
	router.HandlerFunc("GET", "/spawn", theShop.serveSpawn)
	go http.Serve(listener, logged(router))
	return httpRequests(listener)
}
