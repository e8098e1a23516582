# Unpacks a package's archive from standard input into a folder: regular files only, never outside of it.
import io, os, sys, tarfile

LIMIT = 1 << 30
target = os.path.realpath(sys.argv[1])
total = 0
with tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()), mode="r:*") as archive:
    for member in archive:
        if not member.isreg():
            continue
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        if not parts or ".." in parts or "\0" in member.name or member.name.startswith("/"):
            sys.exit("the archive holds the path %r" % member.name)
        total += member.size
        if total > LIMIT:
            sys.exit("the archive is larger than %d bytes unpacked" % LIMIT)
        path = os.path.join(target, *parts)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            file.write(archive.extractfile(member).read())
