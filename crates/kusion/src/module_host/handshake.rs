//! The line in which a go-plugin process prints its address:
//! `CORE|APPLICATION|NETWORK|ADDRESS|PROTOCOL|CERTIFICATE|MULTIPLEX`, the last two optional.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::ModuleError;

/// The version of go-plugin's own protocol.
const CORE: &str = "1";

/// The version of Kusion's module protocol.
pub(super) const APPLICATION: &str = "1";

/// Address at which a module serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ModuleAddress {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl ModuleAddress {
    /// Parses the first line of output. A Unix socket must be in `folder`, so that the request can reach no
    /// other process.
    pub(super) fn parse(line: &str, folder: &Path, network: bool) -> Result<Self, ModuleError> {
        let fields: Vec<&str> = line.trim_end().split('|').collect();
        let [core, application, kind, address, rest @ ..] = fields.as_slice() else {
            return Err(ModuleError::NoHandshake(shown(line)));
        };
        let refuse = |what: String| Err(ModuleError::Handshake(what));
        if core.is_empty() || !core.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ModuleError::NoHandshake(shown(line)));
        }
        if *core != CORE {
            return refuse(format!(
                "version {} of the go-plugin protocol instead of {CORE}",
                shown(core)
            ));
        }
        if *application != APPLICATION {
            let version = shown(application);
            return refuse(format!(
                "version {version} of the module protocol, and not {APPLICATION}"
            ));
        }
        match rest.first().copied() {
            Some("grpc") => {}
            other => {
                let protocol = shown(other.unwrap_or("netrpc"));
                return refuse(format!("the protocol `{protocol}`, and not `grpc`"));
            }
        }
        if rest.get(1).is_some_and(|certificate| !certificate.is_empty()) {
            return refuse("a certificate, although TLS was not requested".to_owned());
        }
        match *kind {
            "unix" => {
                let path = Path::new(address);
                // Symbolic links are resolved first: through one, the socket could be in another folder.
                let real = path.parent().and_then(|parent| parent.canonicalize().ok());
                if real.as_deref() == Some(folder) {
                    Ok(Self::Unix(path.to_owned()))
                } else {
                    refuse(format!(
                        "the socket `{}`, which is not in its own folder",
                        shown(address)
                    ))
                }
            }
            "tcp" => match address.parse::<SocketAddr>() {
                Ok(address) if network && address.ip().is_loopback() => Ok(Self::Tcp(address)),
                _ => refuse(format!(
                    "the address `{}`, which it may not serve",
                    shown(address)
                )),
            },
            other => refuse(format!("the network `{}`", shown(other))),
        }
    }
}

/// Returns a text of the module for a message, shortened and with control characters escaped.
fn shown(text: &str) -> String {
    let start: String = text.trim_end().chars().take(120).collect();
    start.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_in_its_own_folder_is_dialled() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().canonicalize().unwrap();
        let socket = own.join("plugin123");
        let parse = |line: &str| ModuleAddress::parse(line, &own, false);
        let good = format!("1|1|unix|{}|grpc", socket.display());
        assert_eq!(parse(&good).unwrap(), ModuleAddress::Unix(socket));
        assert!(parse(&format!("{good}|\n")).is_ok());
        for (line, says) in [
            ("1|1|unix|/var/run/docker.sock|grpc|", "not in its own folder"),
            ("1|1|unix|plugin|grpc|", "not in its own folder"),
            ("1|1|tcp|127.0.0.1:80|grpc|", "may not serve"),
            ("1|2|unix|/x|grpc|", "version 2 of the module protocol"),
            ("2|1|unix|/x|grpc|", "version 2 of the go-plugin"),
            ("1|1|unix|/x", "`netrpc`"),
            ("1|1|unix|/x|grpc|MIIB", "a certificate"),
            ("starting up\n", "`starting up`"),
            ("a|b|c|d|grpc", "`a|b|c|d|grpc`"),
            ("\u{1b}[31m", "\\u{1b}"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(says), "{line}: {error}");
        }
        let outside = folder.path().join("..").join("x");
        assert!(parse(&format!("1|1|unix|{}|grpc|", outside.display())).is_err());
    }

    #[test]
    fn a_port_of_this_machine_is_dialled_if_the_network_is_allowed() {
        let parse = |line: &str| ModuleAddress::parse(line, Path::new("/x"), true);
        assert!(matches!(
            parse("1|1|tcp|127.0.0.1:1234|grpc|"),
            Ok(ModuleAddress::Tcp(_))
        ));
        assert!(parse("1|1|tcp|10.0.0.1:1234|grpc|").is_err());
        assert!(parse("1|1|tcp|localhost:1234|grpc|").is_err());
    }
}
