package contextbuilder

// Asked is what tests look into.
var Asked = asked
