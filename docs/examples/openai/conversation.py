"""A conversation in Turnledger, with nothing but Python's standard library.

    OPENAI_BASE_URL=http://127.0.0.1:8480/v1 OPENAI_API_KEY=$TURNLEDGER_KEY python3 conversation.py

With the openai package the same is client.conversations.create(), client.responses.create(), and so on.
"""

import json
import os
import urllib.error
import urllib.request

BASE = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8480/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none")


def opened(method, path, body=None):
    """Send a request and return the answer, to be read."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(BASE + path, data, headers, method=method))


def call(method, path, body=None):
    """Send a request and return the JSON of the answer."""
    with opened(method, path, body) as answer:
        return json.load(answer)


def events(body):
    """Ask for a response and return the events of its stream as they come."""
    with opened("POST", "/responses", {**body, "stream": True}) as answer:
        for line in answer:
            if line.startswith(b"data: "):
                yield json.loads(line[len(b"data: "):])


def text(response):
    """Return the text of a response."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    return "".join(part["text"] for part in parts if part["type"] == "output_text")


def items(conversation):
    """Return all items of a conversation, oldest first, page by page."""
    after = ""
    while True:
        page = call("GET", f"/conversations/{conversation}/items?order=asc&limit=4{after}")
        yield from page["data"]
        if not page["has_more"]:
            return
        after = "&after=" + page["last_id"]


def main():
    model = call("GET", "/models")["data"][0]["id"]
    conversation = call("POST", "/conversations", {
        "metadata": {"customer": "4711"},
        "items": [
            {"role": "user", "content": "My boiler is a B20."},
            {"role": "assistant", "content": "Thank you, I have noted that."},
        ],
    })["id"]

    answer = call("POST", "/responses", {
        "model": model, "conversation": conversation, "input": "Which gas does it need?"})
    print("answer:", text(answer))
    asks = {"model": model, "conversation": conversation, "input": "And how much of it?"}
    print("streamed:", "".join(e["delta"] for e in events(asks) if e["type"] == "response.output_text.delta"))

    tools = [{"type": "function", "name": "price", "strict": False,
              "parameters": {"type": "object", "properties": {"fuel": {"type": "string"}}}}]
    asks = {"model": model, "conversation": conversation, "tools": tools}
    asked = call("POST", "/responses", {**asks, "input": "Propane"})
    outputs = [{"type": "function_call_output", "call_id": item["call_id"], "output": "1.10 a litre"}
               for item in asked["output"] if item["type"] == "function_call"]
    print("with a tool:", text(call("POST", "/responses", {**asks, "input": outputs})))

    for item in items(conversation):
        print(f"{item['role']}: {item['content'][0]['text']}" if item["type"] == "message" else item["type"])

    print("deleted:", call("DELETE", f"/conversations/{conversation}")["deleted"])
    try:
        call("GET", f"/conversations/{conversation}")
    except urllib.error.HTTPError as gone:
        print("then:", gone.code)


if __name__ == "__main__":
    main()
