package main

import (
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/recover"
	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

func (s *shop) ginCheckout(c *gin.Context) { s.checkout() }

func (s *shop) ginStock(c *gin.Context) { s.stock() }

func (s *shop) ginSpawn(c *gin.Context) { s.serveSpawn(c.Writer, c.Request) }

func serveGin(listener net.Listener) []func() {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(gin.LoggerWithWriter(io.Discard), gin.Recovery(), func(c *gin.Context) { c.Next() })
	router.GET("/checkout", theShop.ginCheckout)
	router.GET("/closure", func(c *gin.Context) { wait() })
	router.Group("/group", gin.ErrorLogger()).GET("/stock", theShop.ginStock)
	router.GET("/spawn", theShop.ginSpawn)
	go http.Serve(listener, router)
	return httpRequests(listener)
}

func (s *shop) echoCheckout(c echo.Context) error {
	s.checkout()
	return nil
}

func (s *shop) echoStock(c echo.Context) error {
	s.stock()
	return nil
}

func (s *shop) echoSpawn(c echo.Context) error {
	s.serveSpawn(c.Response(), c.Request())
	return nil
}

func timed(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error { return next(c) }
}

func serveEcho(listener net.Listener) []func() {
	router := echo.New()
	router.Use(middleware.Recover(), timed, echo.WrapMiddleware(logged))
	router.GET("/checkout", theShop.echoCheckout, middleware.RequestID())
	router.GET("/closure", func(c echo.Context) error {
		wait()
		return nil
	})
	router.Group("/group", middleware.Secure()).GET("/stock", theShop.echoStock)
	router.GET("/spawn", theShop.echoSpawn)
	go http.Serve(listener, router)
	return httpRequests(listener)
}

func (s *shop) fiberCheckout(c *fiber.Ctx) error {
	s.checkout()
	return nil
}

func (s *shop) fiberStock(c *fiber.Ctx) error {
	s.stock()
	return nil
}

func (s *shop) fiberSpawn(c *fiber.Ctx) error {
	s.serveSpawn(nil, nil)
	return nil
}

func serveFiber(listener net.Listener) []func() {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(recover.New(), func(c *fiber.Ctx) error { return c.Next() })
	app.Get("/checkout", theShop.fiberCheckout)
	app.Get("/closure", func(c *fiber.Ctx) error {
		wait()
		return nil
	})
	app.Group("/group", func(c *fiber.Ctx) error { return c.Next() }).Get("/stock", theShop.fiberStock)
	app.Get("/spawn", theShop.fiberSpawn)
	go app.Listener(listener)
	return httpRequests(listener)
}
