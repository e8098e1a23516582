//! Helpers of Kubernetes' CEL functions for arguments, results and errors.

use std::sync::Arc;

use cel::{ExecutionError, Value as CelValue, objects::Opaque};

pub(super) type CelResult = Result<CelValue, ExecutionError>;

pub(super) fn error(function: &str, message: &str) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

/// Returns an argument as a string, or an error if it is none.
pub(super) fn text(function: &str, value: &CelValue) -> Result<Arc<String>, ExecutionError> {
    match value {
        CelValue::String(text) => Ok(Arc::clone(text)),
        _ => Err(error(function, "it needs a string")),
    }
}

/// Returns an argument as a value of one of the libraries; `None` if it has another type.
pub(super) fn opaque<T: Opaque + Clone>(value: &CelValue) -> Option<T> {
    match value {
        CelValue::Opaque(opaque) => opaque.downcast_ref::<T>().cloned(),
        _ => None,
    }
}

pub(super) fn string(text: impl Into<String>) -> CelValue {
    CelValue::String(Arc::new(text.into()))
}
