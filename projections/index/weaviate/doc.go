// Package weaviate keeps the index in Weaviate: batches and searches by gRPC, with the messages of Weaviate's own
// module, and collections and the alias by REST. GraphQL is not used: its texts can't be quoted safely.
//
// No error holds what Weaviate answered to a call with texts, since such an answer may repeat them.
package weaviate
