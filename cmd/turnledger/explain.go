package main

type explainCmd struct{ remote }

func (c *explainCmd) Run(e *env) error { return nil }
