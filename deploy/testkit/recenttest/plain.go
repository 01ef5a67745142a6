package recenttest

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/turnledger/turnledger/events/conversation"
)

// Plain returns all that a state shows to others, in a form that compares by value: times as UTC, bytes as text. It
// leaves out the digests of bodies, which only the fold itself knows.
func Plain(s *conversation.State) any {
	if s == nil {
		return nil
	}
	out := map[string]any{
		"session": s.SessionID, "applied": s.Applied, "whole": s.Whole, "head": plain(reflect.ValueOf(s.Head())),
		"description": plain(reflect.ValueOf(s.Description())),
	}
	turns := []any{}
	for _, t := range s.Turns {
		turns = append(turns, plain(reflect.ValueOf(t)), t.Extensions())
	}
	out["turns"] = turns
	return out
}

func plain(v reflect.Value) any {
	switch x := v.Interface().(type) {
	case time.Time:
		return x.UTC().Format(time.RFC3339Nano)
	case json.RawMessage:
		return string(x)
	case uuid.UUID:
		return x.String()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return nil
		}
		return plain(v.Elem())
	case reflect.Struct:
		out := map[string]any{}
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				out[f.Name] = plain(v.Field(i))
			}
		}
		return out
	default:
		return v.Interface()
	}
}
