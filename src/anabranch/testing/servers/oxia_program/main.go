// Oxia in one process, for tests: addresses, folder and shards come from flags.
package main

import (
	"flag"
	"io"
	"path/filepath"
	"time"

	"github.com/oxia-db/oxia/common/constant"
	"github.com/oxia-db/oxia/common/process"
	"github.com/oxia-db/oxia/common/proto"
	"github.com/oxia-db/oxia/oxiad/common/option"
	"github.com/oxia-db/oxia/oxiad/common/rpc/auth"
	"github.com/oxia-db/oxia/oxiad/dataserver"
)

func main() {
	address := flag.String("address", "127.0.0.1:6648", "public address")
	metrics := flag.String("metrics", "127.0.0.1:0", "metrics address")
	folder := flag.String("folder", "oxia-data", "data folder")
	shards := flag.Uint("shards", 1, "number of shards")
	certificate := flag.String("certificate", "", "file; with it, only TLS is spoken")
	key := flag.String("key", "", "file with the certificate's key")
	tokens := flag.String("tokens", "", "whose tokens are accepted, as Oxia's OIDC parameters; with it, only who has one gets in")
	flag.Parse()
	sorting, err := proto.ParseKeySortingType("hierarchical")
	if err != nil {
		panic(err)
	}
	conf := dataserver.StandaloneConfig{}
	conf.NumShards = uint32(*shards)
	conf.NotificationsEnabled = true
	conf.KeySorting = sorting
	server := &conf.DataServerOptions
	server.Server.Public.BindAddress = *address
	server.Server.Public.TLS.CertFile = *certificate
	server.Server.Public.TLS.KeyFile = *key
	if *tokens != "" {
		// A server in one process takes this and not what is configured.
		auth.Disabled = auth.Options{Provider: auth.ProviderOIDC, ProviderParams: *tokens}
	}
	server.Observability.Metric.BindAddress = *metrics
	server.Storage.WAL.Sync = &constant.FlagTrue
	server.Storage.WAL.Dir = filepath.Join(*folder, "wal")
	server.Storage.WAL.Retention = option.Duration(time.Hour)
	server.Storage.Database.Dir = filepath.Join(*folder, "db")
	server.Storage.Notification.Retention = option.Duration(time.Hour)
	process.RunProcess(func() (io.Closer, error) { return dataserver.NewStandalone(conf) })
}
