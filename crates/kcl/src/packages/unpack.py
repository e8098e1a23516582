# Unpacks a package's archive from standard input into a folder: regular files only, never outside of it. Runs behind
# a sandbox that lets it write there alone. Arguments: the folder, the most bytes, the most files.
import gzip, os, sys, tarfile

target = os.path.realpath(sys.argv[1])
most_bytes, most_files = int(sys.argv[2]), int(sys.argv[3])
# Headers and padding take no more than this for each file.
OVERHEAD = 8192


class Counted:
    # Everything that comes out of the compression counts, also what is passed over.
    def __init__(self, stream):
        self.stream, self.left = stream, most_bytes + OVERHEAD * (most_files + 1)

    def read(self, size):
        part = self.stream.read(size)
        self.left -= len(part)
        if self.left < 0:
            sys.exit("the archive holds more than %d bytes" % most_bytes)
        return part


stream = sys.stdin.buffer
if stream.peek(2)[:2] == b"\x1f\x8b":
    stream = gzip.GzipFile(fileobj=stream)
total = members = 0
try:
    with tarfile.open(fileobj=Counted(stream), mode="r|") as archive:
        for member in archive:
            members += 1
            if members > most_files:
                sys.exit("the archive holds more than %d files" % most_files)
            # What is remembered of each member would grow with their number.
            archive.members = []
            if not member.isreg() or member.issparse():
                continue
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if not parts or ".." in parts or "\0" in member.name or member.name.startswith("/"):
                sys.exit("the archive holds the path %r" % member.name[:200])
            total += member.size
            if total > most_bytes:
                sys.exit("the archive holds more than %d bytes" % most_bytes)
            path = os.path.join(target, *parts)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            source = archive.extractfile(member)
            with open(path, "xb") as file:
                while part := source.read(1 << 16):
                    file.write(part)
except MemoryError:
    sys.exit("the archive takes more memory than is allowed to read")
except (tarfile.TarError, EOFError, OSError, ValueError) as error:
    sys.exit("the archive cannot be unpacked: %s" % str(error)[:200])
