package v1

// WhyRestoring is what a call is told while a backup is being restored.
const WhyRestoring = whyRestoring
