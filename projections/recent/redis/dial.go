package redis

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

type dial = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// answering returns a dial whose connections let nothing be read until something was written, or the connection was
// closed. It works around a panic in rueidis v1.0.79: a Redis that has no connection to spare sends an error before any
// command. If the caller's deadline passes before HELLO, rueidis closes the connection, and panics on this error, which
// answers no command.
//
// A nil dial is TCP, with TLS if that is configured.
func answering(dial dial) dial {
	return func(ctx context.Context, address string, d *net.Dialer, secure *tls.Config) (conn net.Conn, err error) {
		switch {
		case dial != nil:
			conn, err = dial(ctx, address, d, secure)
		case secure != nil:
			conn, err = (&tls.Dialer{NetDialer: d, Config: secure}).DialContext(ctx, "tcp", address)
		default:
			conn, err = d.DialContext(ctx, "tcp", address)
		}
		if err != nil {
			return nil, err
		}
		asked := make(chan struct{})
		return &answeringConn{conn, asked, sync.OnceFunc(func() { close(asked) })}, nil
	}
}

type answeringConn struct {
	net.Conn
	asked <-chan struct{}
	ask   func()
}

func (c *answeringConn) Read(b []byte) (int, error) {
	<-c.asked
	return c.Conn.Read(b)
}

func (c *answeringConn) Write(b []byte) (int, error) {
	c.ask()
	return c.Conn.Write(b)
}

func (c *answeringConn) Close() error {
	c.ask()
	return c.Conn.Close()
}
