# Sourced by the scripts here: finds java, fetches the real store's jars with Maven once, compiles src/ once.
# Sets JAVA_CMD (an array). Exit 77 means "cannot run here", with the reason on stderr.
# RMQ_INTEROP_CACHE: where jars and classes are kept (default ~/.cache/rmq-interop). Works without network once filled.

rmq_skip() { echo "SKIP: $*" >&2; exit 77; }

# $1: pom, $2: property of the version in it, $3: version, $4: directory for the jars, $5: artifact; then arguments for mvn
rmq_fetch_jars() {
  local ver="$3" lib="$4" log goal
  command -v mvn >/dev/null 2>&1 || rmq_skip "mvn is not installed and the jars of $5 $ver are not cached in $lib"
  mkdir -p "$lib" || rmq_skip "cannot make $lib"
  cp "$1" "$lib.pom.xml" || exit 1
  log="$lib.mvn.log"
  goal=(-q -B -f "$lib.pom.xml" "-D$2=$ver" "${@:6}" dependency:copy-dependencies
        -DincludeScope=runtime "-DoutputDirectory=$lib")
  if ! mvn -o "${goal[@]}" >"$log" 2>&1 && ! mvn "${goal[@]}" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rmq_skip "mvn could not fetch $5 $ver (no network and not cached?), log: $log"
  fi
  ls "$lib/$5-$ver.jar" >/dev/null 2>&1 || rmq_skip "mvn ran, but $lib holds no $5-$ver.jar"
  touch "$lib/.complete"
}

rmq_compile() { # $1: directory with the jars, $2: directory for the classes, then the sources
  local lib="$1" cls="$2" tmp
  shift 2
  [ -d "$cls" ] && return
  tmp="$(mktemp -d "$cls.XXXXXX")" || exit 1
  javac -nowarn -encoding UTF-8 -d "$tmp" -cp "$lib/*" "$@" ||
    { rm -rf "$tmp"; echo "javac failed" >&2; exit 1; }
  # Renamed when complete: several of these scripts may run at once. Whoever comes second keeps the first one's classes.
  mv -T "$tmp" "$cls" 2>/dev/null || rm -rf "$tmp"
}

rmq_find_java() { # sets rmq_here and rmq_cache
  rmq_here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
  command -v java >/dev/null 2>&1 ||
    rmq_skip "java is not installed (a JDK 11 or newer is needed, e.g. the package openjdk-17-jdk-headless)"
  command -v javac >/dev/null 2>&1 ||
    rmq_skip "javac is not installed: a JDK is needed, not only a JRE (e.g. openjdk-17-jdk-headless)"
  rmq_cache="${RMQ_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rmq-interop}"
  mkdir -p "$rmq_cache/home"
  export LC_ALL=C.UTF-8
}

rmq_classes() { # $1: name, then the sources: where their classes are kept
  local name="$1"
  shift
  echo "$rmq_cache/classes-$name-$({ cat "$@"; javac -version; } 2>&1 | cksum | cut -d' ' -f1)"
}

rmq_prepare() { # $1: version
  local ver="$1" lib cls
  case "$ver" in 4.9.8|5.3.3|5.5.1) ;; *) echo "unknown RocketMQ version '$ver' (4.9.8, 5.3.3 or 5.5.1)" >&2; exit 64 ;; esac
  rmq_find_java
  lib="$rmq_cache/lib-$ver"
  [ -f "$lib/.complete" ] || rmq_fetch_jars "$rmq_here/pom.xml" rocketmq.version "$ver" "$lib" rocketmq-store
  cls="$(rmq_classes "$ver" "$rmq_here"/src/*.java)"
  rmq_compile "$lib" "$cls" "$rmq_here"/src/*.java
  # --add-opens: RocketMQ unmaps its files by reflection. user.home: where it would put log files.
  JAVA_CMD=(java --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
            --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED "-Duser.home=$rmq_cache/home" -cp "$cls:$lib/*")
}

rmq_prepare_filter() { # $1: version; the same for RocketMQ's filter module
  local ver="$1" lib cls
  # Maven Central lacks this module of 4.9.8.
  case "$ver" in 4.9.7|5.3.3) ;; *) echo "unknown RocketMQ version '$ver' (4.9.7 or 5.3.3)" >&2; exit 64 ;; esac
  rmq_find_java
  lib="$rmq_cache/lib-filter-$ver"
  [ -f "$lib/.complete" ] || rmq_fetch_jars "$rmq_here/filter/pom.xml" rocketmq.version "$ver" "$lib" rocketmq-filter
  cls="$(rmq_classes "filter-$ver" "$rmq_here"/filter/FilterEval.java)"
  rmq_compile "$lib" "$cls" "$rmq_here"/filter/FilterEval.java
  JAVA_CMD=(java -Xmx512m "-Duser.home=$rmq_cache/home" -cp "$cls:$lib/*")
}

rmq_prepare_broker() { # $1: version; the same for a whole broker. $2: the program, by default Transactions
  local ver="$1" broker="$1" program="${2:-Transactions}" lib cls sources
  [ "$ver" != 4.9.8 ] || broker=4.9.7     # see broker/pom.xml
  case "$ver" in 4.9.8|5.3.3) ;; *) echo "unknown RocketMQ version '$ver' (4.9.8 or 5.3.3)" >&2; exit 64 ;; esac
  rmq_find_java
  lib="$rmq_cache/lib-broker-$ver"
  [ -f "$lib/.complete" ] ||
    rmq_fetch_jars "$rmq_here/broker/pom.xml" rocketmq.version "$ver" "$lib" rocketmq-store "-Drocketmq.broker.version=$broker"
  sources=("$rmq_here/broker/$program.java" "$rmq_here"/src/{Stores,Json}.java)
  cls="$(rmq_classes "${program,,}-$ver" "${sources[@]}")"
  rmq_compile "$lib" "$cls" "${sources[@]}"
  JAVA_CMD=(java --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
            --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
            "-Duser.home=$rmq_cache/home" -cp "$cls:$lib/*")
}

rmq_prepare_clients() { # $1: version; the same for clients and mqadmin
  local ver="$1" lib cls
  case "$ver" in 4.9.8|5.3.3) ;; *) echo "unknown RocketMQ version '$ver' (4.9.8 or 5.3.3)" >&2; exit 64 ;; esac
  rmq_find_java
  lib="$rmq_cache/lib-clients-$ver"
  [ -f "$lib/.complete" ] || rmq_fetch_jars "$rmq_here/clients/pom.xml" rocketmq.version "$ver" "$lib" rocketmq-client
  cls="$(rmq_classes "clients-$ver" "$rmq_here"/clients/*.java)"
  rmq_compile "$lib" "$cls" "$rmq_here"/clients/*.java
  JAVA_CMD=(java --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
            --add-opens=java.base/java.lang=ALL-UNNAMED "-Duser.home=$rmq_cache/home" -cp "$cls:$lib/*")
}

rmq_prepare_conformance() { # the same for RocketMQ's own integration tests, with these classes of ours before theirs
  local ver=5.5.0 lib cls sources
  rmq_find_java
  lib="$rmq_cache/lib-conformance-$ver"
  [ -f "$lib/.complete" ] ||
    rmq_fetch_jars "$rmq_here/conformance/pom.xml" rocketmq.version "$ver" "$lib" rocketmq-test
  sources=("${@/#/$rmq_here/conformance/}")
  cls="$(rmq_classes "conformance-$#-$ver" "${sources[@]}")"
  rmq_compile "$lib" "$cls" "${sources[@]}"
  JAVA_CMD=(java --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
            --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
            --add-opens=java.base/java.util=ALL-UNNAMED "-Duser.home=$rmq_cache/home" -cp "$cls:$lib/*")
}

rmq_prepare_chronicle() { # the same for Chronicle Queue; its analytics are off
  local ver=2026.2 lib cls sources
  rmq_find_java
  lib="$rmq_cache/lib-chronicle-$ver"
  [ -f "$lib/.complete" ] || rmq_fetch_jars "$rmq_here/chronicle/pom.xml" chronicle.version "$ver" "$lib" chronicle-queue
  sources=("$rmq_here"/chronicle/ChronicleBench.java "$rmq_here"/src/{BenchWatch,Hist,Json}.java)
  cls="$(rmq_classes "chronicle-$ver" "${sources[@]}")"
  rmq_compile "$lib" "$cls" "${sources[@]}"
  # What Chronicle Queue asks for on Java 17.
  JAVA_CMD=(java --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED --add-exports=java.base/sun.nio.ch=ALL-UNNAMED
            --add-exports=jdk.unsupported/sun.misc=ALL-UNNAMED
            --add-exports=jdk.compiler/com.sun.tools.javac.file=ALL-UNNAMED
            --add-opens=jdk.compiler/com.sun.tools.javac=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED
            --add-opens=java.base/java.lang.reflect=ALL-UNNAMED --add-opens=java.base/java.io=ALL-UNNAMED
            --add-opens=java.base/java.util=ALL-UNNAMED -Dchronicle.analytics.disable=true
            "-Duser.home=$rmq_cache/home" -cp "$cls:$lib/*")
}
