# Sourced by the scripts here: finds java, fetches the real store's jars with Maven once, compiles src/ once.
# Sets JAVA_CMD (an array). Exit 77 means "cannot run here", with the reason on stderr.
# RMQ_INTEROP_CACHE: where jars and classes are kept (default ~/.cache/rmq-interop). Works without network once filled.

rmq_skip() { echo "SKIP: $*" >&2; exit 77; }

rmq_fetch_jars() { # $1: version, $2: directory for the jars
  local ver="$1" lib="$2" log goal
  command -v mvn >/dev/null 2>&1 || rmq_skip "mvn is not installed and the jars of RocketMQ $ver are not cached in $lib"
  mkdir -p "$lib" || rmq_skip "cannot make $lib"
  cp "$rmq_here/pom.xml" "$lib.pom.xml" || exit 1
  log="$lib.mvn.log"
  goal=(-q -B -f "$lib.pom.xml" "-Drocketmq.version=$ver" dependency:copy-dependencies
        -DincludeScope=runtime "-DoutputDirectory=$lib")
  if ! mvn -o "${goal[@]}" >"$log" 2>&1 && ! mvn "${goal[@]}" >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    rmq_skip "mvn could not fetch org.apache.rocketmq:rocketmq-store:$ver (no network and not cached?), log: $log"
  fi
  ls "$lib/rocketmq-store-$ver.jar" >/dev/null 2>&1 || rmq_skip "mvn ran, but $lib holds no rocketmq-store-$ver.jar"
  touch "$lib/.complete"
}

rmq_compile() { # $1: directory with the jars, $2: directory for the classes
  local lib="$1" cls="$2" tmp
  [ -d "$cls" ] && return
  tmp="$(mktemp -d "$cls.XXXXXX")" || exit 1
  javac -nowarn -encoding UTF-8 -d "$tmp" -cp "$lib/*" "$rmq_here"/src/*.java ||
    { rm -rf "$tmp"; echo "javac failed" >&2; exit 1; }
  # Renamed when complete: several of these scripts may run at once. Whoever comes second keeps the first one's classes.
  mv -T "$tmp" "$cls" 2>/dev/null || rm -rf "$tmp"
}

rmq_prepare() { # $1: version
  local ver="$1" cache lib cls
  rmq_here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
  case "$ver" in 4.9.8|5.3.3|5.5.1) ;; *) echo "unknown RocketMQ version '$ver' (4.9.8, 5.3.3 or 5.5.1)" >&2; exit 64 ;; esac
  command -v java >/dev/null 2>&1 ||
    rmq_skip "java is not installed (a JDK 11 or newer is needed, e.g. the package openjdk-17-jdk-headless)"
  command -v javac >/dev/null 2>&1 ||
    rmq_skip "javac is not installed: a JDK is needed, not only a JRE (e.g. openjdk-17-jdk-headless)"
  cache="${RMQ_INTEROP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rmq-interop}"
  lib="$cache/lib-$ver"
  [ -f "$lib/.complete" ] || rmq_fetch_jars "$ver" "$lib"
  cls="$cache/classes-$ver-$({ cat "$rmq_here"/src/*.java; javac -version; } 2>&1 | cksum | cut -d' ' -f1)"
  rmq_compile "$lib" "$cls"
  mkdir -p "$cache/home"
  export LC_ALL=C.UTF-8
  # --add-opens: RocketMQ unmaps its files by reflection. user.home: where it would put log files.
  JAVA_CMD=(java --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
            --add-opens=java.base/jdk.internal.ref=ALL-UNNAMED "-Duser.home=$cache/home" -cp "$cls:$lib/*")
}
