package embedded

// Watch returns one look of Run after the other.
func (s *Server) Watch() (look func()) {
	w := watch{Server: s, pause: firstPause}
	return w.look
}
