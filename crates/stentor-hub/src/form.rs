//! The forms of a message that streams are sent: the exact bytes, made once for all readers.
//!
//! A topic may have half a million readers, and each of them is sent the same bytes. They are
//! rendered when the first reader needs them and cached beside the message (`rendered.rs`).

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use stentor_wire::deflate::Deflater;
use stentor_wire::http1::write_chunk;
use stentor_wire::lookup::json_string;
use stentor_wire::sse;
use stentor_wire::websocket::{self, Opcode};

use crate::event::Event;
use crate::field;
use crate::message::JsonPlace;
use crate::rendered::{RenderedBytes, RenderedKind, StreamForm};

/// A message of at most this many bytes is deflated, where it is first needed: within a
/// millisecond, once. A larger one would hold up a worker's other connections, and elsewhere it
/// would be ready only after its readers had been sent the plain one. In bytes.
pub(crate) const DEFLATE_BYTES_MAX: usize = 32 * 1024;

impl Event {
    /// The bytes to send in that form, which is not a deflated one: rendered at the first call, and
    /// cached beside the message.
    #[must_use]
    pub fn streamed(&self, form: StreamForm) -> Arc<RenderedBytes> {
        let kind = RenderedKind::Stream(form);
        let bytes = self.message.find_or_render(kind, || Some(self.render(form)));
        bytes.expect("every message has its plain forms")
    }

    /// The same of a deflated form. It exists if it is smaller than the plain one and the message
    /// has at most 32 KiB. If it does not exist, send the plain one.
    #[must_use]
    pub fn deflated(
        &self,
        deflater: &mut Deflater,
        form: StreamForm,
    ) -> Option<Arc<RenderedBytes>> {
        let message = &self.message;
        if !message.compressible() || message.data().len() > DEFLATE_BYTES_MAX {
            return None;
        }
        message.find_or_render(RenderedKind::Stream(form), || self.deflate(deflater, form))
    }

    /// Appends the bytes of a form that is not a deflated one, without caching them: for readers
    /// that come one by one, as they do to history.
    pub fn append(&self, form: StreamForm, out: &mut Vec<u8>) {
        match self.message.known(RenderedKind::Stream(form)) {
            Some(bytes) => out.extend_from_slice(&bytes),
            None => out.extend_from_slice(&self.render(form)),
        }
    }

    /// A deflated form goes plain here.
    fn render(&self, form: StreamForm) -> Box<[u8]> {
        let mut out = Vec::new();
        match form {
            StreamForm::Sse => self.write_event(&mut out),
            StreamForm::SseChunk => write_chunk(&mut out, |out| self.write_event(out)),
            StreamForm::Envelope => out = self.envelope(),
            StreamForm::EnvelopeSse => self.write_envelope_event(&mut out),
            StreamForm::EnvelopeSseChunk => {
                write_chunk(&mut out, |out| self.write_envelope_event(out));
            }
            _ => {
                let (opcode, payload) = self.frame_content(form);
                websocket::frame(&mut out, opcode, false, &payload);
            }
        }
        out.into_boxed_slice()
    }

    /// `None` if deflating does not make it smaller.
    fn deflate(&self, deflater: &mut Deflater, form: StreamForm) -> Option<Box<[u8]>> {
        let (opcode, payload) = self.frame_content(form);
        let payload = websocket::deflate(deflater, &payload, WINDOW_BITS)?;
        let mut out = Vec::new();
        websocket::frame(&mut out, opcode, true, payload);
        Some(out.into_boxed_slice())
    }

    fn write_event(&self, out: &mut Vec<u8>) {
        let id = self.message.id().text();
        let id = Some(id.as_str());
        if self.message.is_deletion() {
            return sse::notice(out, id, text(&self.deletion()));
        }
        match str::from_utf8(self.message.data()) {
            // An earlier version let publishers choose names that are reserved now.
            Ok(data) => {
                let name = self.message.event().filter(|name| !sse::is_reserved(name));
                sse::event(out, id, name, data);
            }
            // An event stream is text.
            Err(_) => sse::notice(out, id, text(&self.envelope())),
        }
    }

    fn write_envelope_event(&self, out: &mut Vec<u8>) {
        if self.message.is_deletion() {
            return self.write_event(out);
        }
        // The event name is in the envelope: a page reads all topics in one handler.
        let id = self.message.id().text();
        sse::event(out, Some(id.as_str()), None, text(&self.envelope()));
    }

    /// What a frame carries: the envelope, or in a stream of this one topic the data.
    fn frame_content(&self, form: StreamForm) -> (Opcode, Cow<'_, [u8]>) {
        let of_one = matches!(form, StreamForm::Frame | StreamForm::FrameDeflated);
        if !of_one || self.message.is_deletion() {
            return (Opcode::Text, Cow::Owned(self.envelope()));
        }
        let (content_type, data) = (self.message.content_type(), self.message.data());
        let promises_text = field::is_text(content_type) || field::is_json(content_type);
        // A peer must fail a connection on which text is not UTF-8 (RFC 6455, 8.1).
        let is_text = promises_text && str::from_utf8(data).is_ok();
        (if is_text { Opcode::Text } else { Opcode::Binary }, Cow::Borrowed(data))
    }

    /// The JSON object that says all there is to say.
    fn envelope(&self) -> Vec<u8> {
        let message = &self.message;
        if message.is_deletion() {
            return self.deletion();
        }
        let mut out = Vec::with_capacity(message.data().len() + ENVELOPE_BYTES_USUAL);
        self.write_before_data(&mut out);
        message.write_json(JsonPlace::Member, &mut out);
        self.write_after_data(&mut out);
        out
    }

    /// The envelope of a message with its data in base64, whatever the data is.
    #[must_use]
    pub fn envelope_of_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_before_data(&mut out);
        out.extend_from_slice(br#""data_base64":""#);
        out.extend_from_slice(STANDARD.encode(self.message.data()).as_bytes());
        out.push(b'"');
        self.write_after_data(&mut out);
        out
    }

    /// How many bytes the envelope has. Found out without writing its data.
    #[must_use]
    pub fn envelope_len(&self) -> usize {
        if self.message.is_deletion() {
            return self.envelope().len();
        }
        let mut around = Vec::with_capacity(ENVELOPE_BYTES_USUAL);
        self.write_before_data(&mut around);
        self.write_after_data(&mut around);
        around.len() + self.message.json_len(JsonPlace::Member)
    }

    /// Appends a part of the envelope: with at most so many bytes of the data, from this one on.
    /// Returns where the next part begins; `None` if this was the last.
    pub fn append_envelope_part(
        &self,
        from: usize,
        bytes_max: usize,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        if self.message.is_deletion() {
            out.extend_from_slice(&self.envelope());
            return None;
        }
        if from == 0 {
            self.write_before_data(out);
        }
        let next = self.message.write_json_part(JsonPlace::Member, from, bytes_max, out);
        if next.is_none() {
            self.write_after_data(out);
        }
        next
    }

    fn write_before_data(&self, out: &mut Vec<u8>) {
        self.write_place(out);
        out.extend_from_slice(br#","type":"#);
        json_string(out, self.message.content_type());
        out.push(b',');
    }

    fn write_after_data(&self, out: &mut Vec<u8>) {
        if let Some(event) = self.message.event() {
            out.extend_from_slice(br#","event":"#);
            json_string(out, event);
        }
        out.push(b'}');
    }

    /// The JSON object of a deletion.
    fn deletion(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write_place(&mut out);
        out.extend_from_slice(br#","deleted":true}"#);
        out
    }

    /// The beginning of an envelope: topic and id.
    fn write_place(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"topic":"#);
        json_string(out, self.topic());
        out.extend_from_slice(br#","id":"#);
        json_string(out, self.message.id().text().as_str());
    }
}

fn text(json: &[u8]) -> &str {
    str::from_utf8(json).expect("JSON is made of text only")
}

/// The largest window there is (RFC 7692, 7.1.2.1). One deflated form serves all readers; those
/// who asked for a smaller window are sent the plain form.
const WINDOW_BITS: u8 = 15;

/// Room for what an envelope has beside its data: an estimate that saves growing, not a limit.
const ENVELOPE_BYTES_USUAL: usize = 128;

#[cfg(test)]
mod tests;
