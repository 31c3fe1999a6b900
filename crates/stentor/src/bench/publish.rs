//! How messages are published to readers: flags of every run that has some.

use clap::Args;
use stentor_bench::plan::Publish;
use stentor_bench::target::Target;

use super::common::{field, take_host};
use crate::Failure;

/// Flags of publishing.
#[derive(Args, Debug)]
pub(super) struct PublishFlags {
    /// Method of publishing
    #[arg(long, value_name = "METHOD", default_value = "POST", value_parser = ["POST", "PUT"])]
    publish_method: String,
    /// A header field for publishing; may be repeated
    ///
    /// For credentials and the like: 'Authorization: Bearer …'. Without a 'Content-Type' it is
    /// text/plain.
    #[arg(long, value_name = "FIELD", value_parser = field)]
    publish_header: Vec<(String, String)>,
    /// What is published; {message} stands for the message
    ///
    /// A message is letters, digits, '-' and '.', so it needs no escaping in JSON or a form.
    #[arg(long, value_name = "TEMPLATE", default_value = "{message}", value_parser = template)]
    publish_body: String,
}

impl PublishFlags {
    /// Publishing messages of `size` bytes to a server.
    pub(super) fn publish(&self, target: &Target, size: usize) -> Result<Publish, Failure> {
        let (target, mut headers) = take_host(target, &self.publish_header)?;
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Content-Type")) {
            headers.push(("Content-Type".to_owned(), "text/plain".to_owned()));
        }
        let (method, body) = (self.publish_method.clone(), self.publish_body.clone());
        Ok(Publish { target, method, headers, body, size, tls: None })
    }
}

fn template(text: &str) -> Result<String, String> {
    if text.contains("{message}") {
        return Ok(text.to_owned());
    }
    Err("readers need to find the message: write {message} where it is to stand".to_owned())
}
