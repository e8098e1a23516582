//! Helpers of Kubernetes' CEL functions for arguments, results and errors.

use std::sync::Arc;

use cel::{
    Context, ExecutionError, Value as CelValue,
    common::{
        types::CelList,
        value::{CowVal, Val},
    },
    extractors::This,
    objects::Opaque,
};

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

/// Wraps a value of one of the libraries.
pub(super) fn wrapped<T: Opaque>(value: T) -> CelValue {
    CelValue::Opaque(Arc::new(value))
}

/// Returns the items of `N` list arguments.
pub(super) fn lists_of<'b, 'v, const N: usize>(
    function: &str,
    arguments: &'b [CowVal<'_, 'v>],
) -> Result<[&'b [Box<dyn Val + 'v>]; N], ExecutionError> {
    let lists: Option<Vec<_>> = arguments
        .iter()
        .map(|value| value.downcast_ref::<CelList>().map(CelList::inner))
        .collect();
    let lists = lists.and_then(|lists| lists.try_into().ok());
    lists.ok_or_else(|| error(function, "it needs a list"))
}

/// Adds a function of one value, which gets its own name for errors. A name that is already declared keeps its
/// function.
pub(super) fn function(
    context: &mut Context,
    name: &'static str,
    call: impl Fn(&'static str, &CelValue) -> CelResult + Send + Sync + 'static,
) {
    let _ = context.add_function(name, move |value: CelValue| -> CelResult { call(name, &value) });
}

/// Adds a method without arguments.
pub(super) fn method(
    context: &mut Context,
    name: &'static str,
    call: impl Fn(&'static str, &CelValue) -> CelResult + Send + Sync + 'static,
) {
    let call = move |This(this): This<CelValue>| -> CelResult { call(name, &this) };
    let _ = context.add_function(name, call);
}

/// Adds a method with one argument.
pub(super) fn method_with(
    context: &mut Context,
    name: &'static str,
    call: impl Fn(&'static str, &CelValue, &CelValue) -> CelResult + Send + Sync + 'static,
) {
    let call = move |This(this): This<CelValue>, other: CelValue| -> CelResult { call(name, &this, &other) };
    let _ = context.add_function(name, call);
}

pub(super) fn string(text: impl Into<String>) -> CelValue {
    CelValue::String(Arc::new(text.into()))
}
