"""generateContent, of the Gemini API and of proxies for it."""
