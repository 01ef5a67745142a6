package config

import (
	"net"
	"net/url"
	"time"

	"github.com/turnledger/turnledger/projections/index/weaviate"
	"github.com/turnledger/turnledger/services/model/embeddings"
)

// indexing are the settings of the index of meanings (docs/contract.md#index).
type indexing struct {
	WeaviateURL  string `name:"weaviate-url" help:"Weaviate of the index of meanings, 1.32 or newer; unset: searches are by words." env:"TURNLEDGER_WEAVIATE_URL" show:"url"`
	WeaviateGRPC string `name:"weaviate-grpc" help:"host:port of its gRPC; unset: the URL's host, 50051." env:"TURNLEDGER_WEAVIATE_GRPC"`
	WeaviateKey  string `name:"weaviate-key" help:"API key of it." env:"TURNLEDGER_WEAVIATE_KEY" show:"given"`

	EmbedURL        string `name:"embed-url" help:"OpenAI-compatible endpoint of embeddings, up to its version." env:"TURNLEDGER_EMBED_URL" show:"url"`
	EmbedName       string `name:"embed-name" help:"Name of its model." env:"TURNLEDGER_EMBED_NAME"`
	EmbedKey        string `name:"embed-key" help:"Key of the endpoint." env:"TURNLEDGER_EMBED_KEY" show:"given"`
	EmbedDimensions int    `name:"embed-dimensions" help:"Dimensions of its vectors; 0: those of the model. Another model or number needs a rebuild of the index." default:"0" env:"TURNLEDGER_EMBED_DIMENSIONS"`
	EmbedMaxChars   int    `name:"embed-max-chars" help:"Characters of a question, and of an answer, that are embedded." default:"8000" env:"TURNLEDGER_EMBED_MAX_CHARS"`

	IndexAnonymous bool          `name:"index-anonymous" help:"Turns of sessions without an identity are in the index, too. Another value needs a rebuild of the index." env:"TURNLEDGER_INDEX_ANONYMOUS"`
	IndexText      bool          `name:"index-text" help:"Texts of turns are kept in Weaviate for those who read it themselves; false: ids, filters and vectors only. Another value needs a rebuild of the index." default:"true" negatable:"" env:"TURNLEDGER_INDEX_TEXT"`
	IndexScrub     time.Duration `name:"index-scrub" help:"Age at which the index is rebuilt where its files may hold what was erased; off: never." default:"24h" env:"TURNLEDGER_INDEX_SCRUB"`
}

func (c indexing) validate(no *complaints) {
	for _, a := range [][2]string{{"WEAVIATE_URL", c.WeaviateURL}, {"EMBED_URL", c.EmbedURL}} {
		u, err := url.Parse(a[1])
		no.when(a[1] != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"),
			a[0], "must be a URL such as http://127.0.0.1:8080")
	}
	if c.WeaviateGRPC != "" {
		_, _, err := net.SplitHostPort(c.WeaviateGRPC)
		no.when(err != nil, "WEAVIATE_GRPC", "must be host:port, such as 127.0.0.1:50051")
	}
	no.when(c.WeaviateURL != "" && c.EmbedURL == "", "EMBED_URL", "is needed with TURNLEDGER_WEAVIATE_URL")
	no.when(c.EmbedURL != "" && c.EmbedName == "", "EMBED_NAME", "is needed with TURNLEDGER_EMBED_URL")
	no.unless(within(c.EmbedDimensions, 0, 65_535), "EMBED_DIMENSIONS", "must be 0 to 65535")
	no.unless(within(c.EmbedMaxChars, 100, 1_000_000), "EMBED_MAX_CHARS", "must be 100 to 1000000")
	no.when(c.IndexScrub != 0 && c.IndexScrub < time.Second, "INDEX_SCRUB", "must be at least 1s, or off")
}

// Weaviate returns how the index is reached.
func (c indexing) Weaviate() weaviate.Config {
	return weaviate.Config{
		URL: c.WeaviateURL, GRPC: c.WeaviateGRPC, Key: c.WeaviateKey, WithoutTexts: !c.IndexText,
	}
}

// Embeddings returns how vectors are made.
func (c indexing) Embeddings() embeddings.Config {
	return embeddings.Config{URL: c.EmbedURL, Name: c.EmbedName, Key: c.EmbedKey, Dimensions: c.EmbedDimensions}
}
