package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/turnledger/turnledger/services/client"
)

// A pipeline records what it was asked before it works, and its answer after.
func ExampleHistoryService() {
	ctx := context.Background()
	var history client.HistoryService
	history, err := client.New(client.Config{URL: "http://127.0.0.1:8480", Key: os.Getenv("TURNLEDGER_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	turnID, err := history.OnRequestStarted(ctx, client.Start{SessionID: "s-1", RequestID: "http-request-17",
		QuestionNeutral: "Who is Ada Lovelace?"})
	if err != nil {
		log.Fatal(err)
	}
	answer := "A mathematician." // what the pipeline finds
	if err := history.OnRequestFinalized(ctx, client.Finalize{SessionID: "s-1", TurnID: turnID,
		AnswerNeutral: answer}); err != nil {
		log.Fatal(err)
	}
}

// A pipeline that has the answer already records both in one call.
func ExampleClient_RecordTurn() {
	c, err := client.New(client.Config{Key: os.Getenv("TURNLEDGER_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	turn, err := c.RecordTurn(context.Background(), client.WholeTurn{
		Start:  client.Start{SessionID: "s-1", RequestID: "http-request-18", QuestionNeutral: "When did she live?"},
		Answer: &client.Answer{AnswerNeutral: "From 1815 to 1852."},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(turn.TurnID, turn.Status)
}

// Many turns go in one call, and each has its own outcome.
func ExampleClient_RecordTurns() {
	c, err := client.New(client.Config{Key: os.Getenv("TURNLEDGER_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	var turns []client.WholeTurn // what is to be recorded
	recorded, err := c.RecordTurns(context.Background(), turns)
	if err != nil {
		log.Fatal(err)
	}
	for i, r := range recorded {
		if r.Err != nil {
			fmt.Println(turns[i].RequestID, r.Err)
		}
	}
}

// The next request gets the messages for its model in one call.
func ExampleClient_Context() {
	c, err := client.New(client.Config{ReadYourWrites: true})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	prompt, err := c.Context(context.Background(), "s-1", client.ContextRequest{Message: "When did she live?",
		SystemPrompt: "Be brief."})
	if err != nil {
		log.Fatal(err)
	}
	for _, message := range prompt.Messages {
		fmt.Println(string(message))
	}
}

// Programs go by the code of an error.
func ExampleError() {
	c, err := client.New(client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.LinkSession(context.Background(), "ada", "s-1")
	if errors.Is(err, &client.Error{Code: "session_linked_elsewhere"}) {
		fmt.Println("begin a new session")
	}
}
