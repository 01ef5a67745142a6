package embedded

// Watch returns one look of Run after the other.
func (s *Server) Watch() (look func()) {
	w := watch{Server: s, pause: firstPause}
	return w.look
}

// Reopen begins JetStream anew, as Run does once a full disk has room.
func (s *Server) Reopen() error { return s.reopen() }
