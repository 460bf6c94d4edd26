module github.com/tideover/tideover/nostr

go 1.26.0

require (
	github.com/btcsuite/btcd/btcec/v2 v2.5.0
	github.com/coder/websocket v1.8.15
	github.com/decred/dcrd/bech32 v1.1.3
	github.com/tideover/tideover v0.0.0
)

require (
	github.com/btcsuite/btcd/chainhash/v2 v2.0.0 // indirect
	github.com/decred/dcrd/crypto/blake256 v1.1.0 // indirect
	github.com/decred/dcrd/dcrec/secp256k1/v4 v4.4.0 // indirect
)

replace github.com/tideover/tideover => ../
