//! What a client sends: a request, a notification, or the answer to a request of the server.

use serde_json::{Map, Value, json};

/// Why a request is refused, by the codes of JSON-RPC and of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusalCode {
    /// The content is not JSON.
    Parse = -32_700,
    /// It is JSON, but not a message, or not one that fits here.
    InvalidRequest = -32_600,
    /// The server has no such request.
    UnknownMethod = -32_601,
    /// The parameters are not those of the request.
    InvalidParams = -32_602,
    /// A bug.
    Internal = -32_603,
    /// A request before `initialize`.
    NotInitialized = -32_002,
    /// The client cancelled the request.
    Cancelled = -32_800,
    /// The request is valid, and its work failed.
    Failed = -32_803,
}

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RpcRefusal {
    /// The code.
    pub(crate) code: RefusalCode,
    /// What is wrong.
    pub(crate) message: String,
}

impl RpcRefusal {
    /// With a message.
    pub(crate) fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Parameters that are missing or of another type.
    pub(crate) fn params(what: &str) -> Self {
        Self::new(RefusalCode::InvalidParams, what)
    }
}

/// A message of the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Incoming {
    /// Wants an answer with the same id.
    Request {
        /// A number or a string.
        id: Value,
        /// What is asked.
        method: String,
        /// The parameters.
        params: Value,
    },
    /// Wants no answer.
    Notification {
        /// What happened.
        method: String,
        /// The parameters.
        params: Value,
    },
    /// The answer to a request of the server.
    Response,
}

impl Incoming {
    /// Reads the content of a frame.
    pub(crate) fn parse(content: &[u8]) -> Result<Self, RpcRefusal> {
        let value: Value = serde_json::from_slice(content).map_err(|error| {
            RpcRefusal::new(RefusalCode::Parse, format!("the message is not JSON: {error}"))
        })?;
        let invalid = |what: &str| RpcRefusal::new(RefusalCode::InvalidRequest, what);
        let Value::Object(mut message) = value else {
            return Err(invalid("the message must be an object"));
        };
        let params = message.remove("params").unwrap_or(Value::Null);
        let id = message.remove("id").filter(|id| !id.is_null());
        let is_answer =
            |message: &Map<String, Value>| message.contains_key("result") || message.contains_key("error");
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            None if is_answer(&message) => return Ok(Self::Response),
            None => return Err(invalid("the message has no `method`")),
            Some(_) => return Err(invalid("`method` must be a string")),
        };
        match id {
            None => Ok(Self::Notification { method, params }),
            Some(id) if id.is_string() || id.is_number() => Ok(Self::Request { id, method, params }),
            Some(_) => Err(invalid("`id` must be a string or a number")),
        }
    }
}

/// The answer to a request.
pub(crate) fn answer(id: &Value, result: Result<Value, RpcRefusal>) -> Value {
    match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(refusal) => {
            let error = json!({"code": refusal.code as i32, "message": refusal.message});
            json!({"jsonrpc": "2.0", "id": id, "error": error})
        }
    }
}

/// A notification of the server.
pub(crate) fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A request of the server.
pub(crate) fn request(id: &str, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let parsed = |text: &str| Incoming::parse(text.as_bytes());
        assert_eq!(
            parsed(r#"{"jsonrpc":"2.0","id":"a","method":"m","params":[1]}"#),
            Ok(Incoming::Request {
                id: json!("a"),
                method: "m".to_owned(),
                params: json!([1])
            })
        );
        assert_eq!(
            parsed(r#"{"id":null,"method":"m"}"#),
            Ok(Incoming::Notification {
                method: "m".to_owned(),
                params: Value::Null
            })
        );
        assert_eq!(parsed(r#"{"id":1,"result":null}"#), Ok(Incoming::Response));
        for (text, code) in [
            ("", RefusalCode::Parse),
            ("{", RefusalCode::Parse),
            ("\u{0}", RefusalCode::Parse),
            ("[]", RefusalCode::InvalidRequest),
            ("1", RefusalCode::InvalidRequest),
            ("{}", RefusalCode::InvalidRequest),
            (r#"{"method":1}"#, RefusalCode::InvalidRequest),
            (r#"{"id":{},"method":"m"}"#, RefusalCode::InvalidRequest),
        ] {
            assert_eq!(parsed(text).unwrap_err().code, code, "{text}");
        }
        // Nested deeper than any message.
        let deep = "[".repeat(100_000);
        assert_eq!(parsed(&deep).unwrap_err().code, RefusalCode::Parse);
        assert_eq!(
            Incoming::parse(b"{\"method\":\"\xff\"}").unwrap_err().code,
            RefusalCode::Parse
        );
    }
}
