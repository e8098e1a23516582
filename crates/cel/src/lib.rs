//! The CEL expressions that health rules and policies share: values, evaluation, and its bounds.

pub mod cel_bounds;
pub mod cel_counting;
pub mod cel_expression;
pub mod cel_value;
