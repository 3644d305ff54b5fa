//! A mock real-time voice agent backend with exact session accounting.
pub mod admin;
pub mod fault;
pub mod runtime;
pub mod session;
pub mod tracker;
