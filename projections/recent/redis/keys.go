package redis

import "context"

// scanCount is how many keys one step looks at.
const scanCount = 1000

// scan returns the keys of a pattern, some at a time.
func (c *client) scan(ctx context.Context, pattern string, take func(keys []string) error) error {
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	// A cluster holds them on the node of their slot.
	for _, node := range conn.Nodes() {
		for cursor := uint64(0); ; {
			entry, err := node.Do(ctx,
				node.B().Scan().Cursor(cursor).Match(pattern).Count(scanCount).Build()).AsScanEntry()
			if err != nil {
				return err
			}
			if err := take(entry.Elements); err != nil {
				return err
			}
			if cursor = entry.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

func (c *client) unlink(ctx context.Context, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	conn, err := c.connect(ctx)
	if err != nil {
		return err
	}
	return c.noted(ctx, conn.Do(ctx, conn.B().Unlink().Key(keys...).Build())).Error()
}
