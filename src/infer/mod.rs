//! What is learned and what is looked up: the classifier through ONNX Runtime, and the passages of the manuals.
//!
//! Neither ever acts. The classifier gives labels with confidences, the library gives passages; what becomes of them is
//! decided in `domain::command`. A model file is never loaded unless its hash is the one in its manifest, and a machine
//! without ONNX Runtime understands commands all the same.

pub mod classifier;
pub mod knowledge;
mod pieces;
pub mod runtime;
