#!/bin/sh
# Certificates for the tests, valid for a hundred years: `sh make.sh` in this directory makes them anew.
# The keys protect nothing.
set -eu
days=36500
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days $days -subj "/CN=rmq_store tests" \
    -keyout ca.key -out ca.pem
for name in server client; do
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=$name" -keyout $name.key -out $name.csr
    printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\n' >$name.ext
    openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -set_serial 0x$(openssl rand -hex 8) -days $days \
        -extfile $name.ext -out $name.pem
    rm $name.csr $name.ext
done
openssl ec -in server.key -aes256 -passout pass:secret -out locked.key
rm ca.key
