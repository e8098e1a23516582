//! Converts probes and lifecycle hooks from the developer's form to Kubernetes' form.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use konverge_base::secrets::without_secrets;

/// A probe as the developer writes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ProbeConfig {
    #[serde(rename = "_type")]
    _schema: Option<String>,
    probe_handler: HandlerConfig,
    #[serde(default)]
    initial_delay_seconds: i32,
    #[serde(default)]
    timeout_seconds: i32,
    #[serde(default)]
    period_seconds: i32,
    #[serde(default)]
    success_threshold: i32,
    #[serde(default)]
    failure_threshold: i32,
}

/// Action of a probe or a hook; the name of its schema selects the kind of action.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct HandlerConfig {
    #[serde(rename = "_type")]
    schema: String,
    #[serde(default)]
    command: Vec<String>,
    #[serde(default)]
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

impl ProbeConfig {
    /// Returns the parts of the URL that a probe drops.
    pub(super) fn without_effect(&self) -> Vec<&'static str> {
        self.probe_handler.without_effect()
    }

    pub(super) fn probe(&self) -> Result<Value, String> {
        let mut probe = self.probe_handler.action()?;
        let numbers = [
            ("failureThreshold", self.failure_threshold),
            ("initialDelaySeconds", self.initial_delay_seconds),
            ("periodSeconds", self.period_seconds),
            ("successThreshold", self.success_threshold),
            ("timeoutSeconds", self.timeout_seconds),
        ];
        for (key, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
            probe.insert(key.to_owned(), json!(number));
        }
        Ok(Value::Object(probe))
    }
}

impl HandlerConfig {
    /// Returns the action, under the key that a probe or a hook has for it.
    pub(super) fn action(&self) -> Result<Map<String, Value>, String> {
        let (key, action) = match self.schema.rsplit('.').next().unwrap_or_default() {
            "Http" => ("httpGet", self.http()?),
            "Exec" => ("exec", json!({"command": self.command})),
            "Tcp" => ("tcpSocket", self.tcp()?),
            other => {
                return Err(format!(
                    "`{}` is not a handler: Http, Exec or Tcp",
                    other.escape_debug()
                ));
            }
        };
        Ok(Map::from_iter([(key.to_owned(), action)]))
    }

    /// Returns the parts of the URL that the action drops: Kusion uses host, port and path only.
    pub(super) fn without_effect(&self) -> Vec<&'static str> {
        let is_http = self.schema.rsplit('.').next() == Some("Http");
        let Some(url) = Url::parse(&self.url).ok().filter(|_| is_http) else {
            return Vec::new();
        };
        let parts = [
            ("user", !url.username().is_empty() || url.password().is_some()),
            ("query", url.query().is_some_and(|query| !query.is_empty())),
            (
                "fragment",
                url.fragment().is_some_and(|fragment| !fragment.is_empty()),
            ),
        ];
        let lost = parts.into_iter().filter(|(_, is_there)| *is_there);
        lost.map(|(part, _)| part).collect()
    }

    fn http(&self) -> Result<Value, String> {
        let wrong = |why: &str| {
            let shown = without_secrets(&self.url);
            format!("the URL `{}` {why}", shown.escape_debug())
        };
        let url = Url::parse(&self.url).map_err(|error| wrong(&format!("is not valid: {error}")))?;
        // `port()` would be `None` where a URL states the default port of its scheme.
        let port = url.port_or_known_default().ok_or_else(|| wrong("has no port"))?;
        let mut action = Map::new();
        let host = url.host_str().unwrap_or_default();
        if !matches!(host, "" | "localhost" | "127.0.0.1") {
            action.insert("host".to_owned(), json!(host));
        }
        if !self.headers.is_empty() {
            let headers = self.headers.iter();
            let headers = headers.map(|(name, value)| json!({"name": name, "value": value}));
            action.insert("httpHeaders".to_owned(), headers.collect());
        }
        // Kusion writes no path if the URL has none, and Kubernetes then requests `/`.
        if has_path(&self.url) {
            action.insert("path".to_owned(), json!(url.path()));
        }
        action.insert("port".to_owned(), json!(port));
        action.insert("scheme".to_owned(), json!(url.scheme().to_uppercase()));
        Ok(Value::Object(action))
    }

    fn tcp(&self) -> Result<Value, String> {
        let address = self
            .url
            .split_once("://")
            .map_or(self.url.as_str(), |(_, rest)| rest);
        let parts = address.trim_end_matches('/').rsplit_once(':');
        let port = parts.and_then(|(_, port)| port.parse::<u16>().ok());
        let (Some((host, _)), Some(port)) = (parts, port) else {
            return Err(format!("`{}` is not HOST:PORT", self.url.escape_debug()));
        };
        let mut action = Map::new();
        if !host.is_empty() {
            action.insert("host".to_owned(), json!(host));
        }
        action.insert("port".to_owned(), json!(port));
        Ok(Value::Object(action))
    }
}

/// Returns true if a URL is written with a path. A parsed URL always has one.
fn has_path(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['?', '#'])
        .next()
        .is_some_and(|before| before.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(value: Value) -> Result<Value, String> {
        let handler: HandlerConfig = serde_json::from_value(value).unwrap();
        handler.action().map(Value::Object)
    }

    #[test]
    fn the_schema_says_what_a_probe_does() {
        let tcp = json!({"_type": "service.container.probe.Tcp", "url": "localhost:8888"});
        assert_eq!(
            action(tcp).unwrap(),
            json!({"tcpSocket": {"host": "localhost", "port": 8888}})
        );
        let exec = json!({"_type": "job.container.lifecycle.Exec", "command": ["/bin/true"]});
        assert_eq!(action(exec).unwrap(), json!({"exec": {"command": ["/bin/true"]}}));
        let http = json!({"_type": "service.container.probe.Http", "url": "http://localhost:80/ready", "headers": {"b": "2", "a": "1"}});
        assert_eq!(
            action(http).unwrap(),
            json!({"httpGet": {"httpHeaders": [{"name": "a", "value": "1"}, {"name": "b", "value": "2"}], "path": "/ready", "port": 80, "scheme": "HTTP"}})
        );
    }

    #[test]
    fn a_url_without_a_path_gets_none() {
        for (url, path) in [
            ("http://localhost:80", None),
            ("http://localhost:80?full=1", None),
            ("http://localhost:80#a/b", None),
            ("http://localhost:80/", Some("/")),
            ("http://localhost:80/live?at=/", Some("/live")),
        ] {
            let http = json!({"_type": "service.container.probe.Http", "url": url});
            let action = action(http).unwrap();
            assert_eq!(
                action["httpGet"].get("path").and_then(Value::as_str),
                path,
                "{url}"
            );
        }
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        for (schema, url) in [
            ("Tcp", "localhost"),
            ("Tcp", "a:b"),
            ("Http", "ready"),
            ("Grpc", "x"),
        ] {
            let handler = json!({"_type": format!("service.container.probe.{schema}"), "url": url});
            assert!(action(handler).is_err(), "{schema} {url}");
        }
    }
}
